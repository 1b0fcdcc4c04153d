//go:build !linux

package main

import "syscall"

// processAttributes is empty: without /proc nothing can be measured here, and
// bench says so before it starts a child.
func processAttributes() *syscall.SysProcAttr { return nil }
