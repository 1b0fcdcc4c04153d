package main

import "syscall"

// processAttributes ties a child's life to ours and keeps a terminal's Ctrl-C
// away from it: it is ended in order.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
