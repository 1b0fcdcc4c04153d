//go:build !linux

package main

import (
	"errors"
	"syscall"
)

// processAttributes is empty: without /proc nothing can be measured here, and
// bench says so before it starts a child.
func processAttributes() *syscall.SysProcAttr { return nil }

// raiseFiles fails, as all of this needs Linux.
func raiseFiles() (uint64, error) { return 0, errors.ErrUnsupported }
