package main

import (
	"fmt"
	"syscall"
)

// processAttributes ties a child's life to ours and keeps a terminal's Ctrl-C
// away from it: it is ended in order.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// raiseFiles raises the limit of open files, of this process and of those that it
// starts, as far as it may, and returns it.
func raiseFiles() (uint64, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("limit of open files: %w", err)
	}
	limit.Cur = limit.Max
	// Set anew also where it is high already: only then children get it.
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("limit of open files: %w", err)
	}
	return limit.Cur, nil
}
