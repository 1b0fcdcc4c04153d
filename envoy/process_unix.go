//go:build unix && !linux

package envoy

import "syscall"

// processAttributes puts Envoy into a group of its own, so that Ctrl-C on a
// terminal reaches only us and Envoy ends in order. Here nothing ends Envoy
// when this process is killed; the next start then finds its address in use.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
