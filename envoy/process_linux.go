package envoy

import "syscall"

// processAttributes puts Envoy into a group of its own, so that Ctrl-C on a
// terminal reaches only us and Envoy ends in order, and ties its life to ours.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
