package e2e

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What `make tools` installs.
const (
	everythingNode    = "servers/ts/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
	mcpRemote         = "clients/ts/node_modules/mcp-remote/dist/proxy.js"
	installFirst      = "`make tools` installs it"
	pythonServer      = "servers/py/server.py"
	endOfProgramWaits = 5 * time.Second
)

// program is a server of somebody else's, in a process of its own.
type program struct {
	Port int
	logs lockedBuffer
}

// startProgram starts a server that listens on 127.0.0.1 at the port that argv
// makes an argument of, and waits until it accepts connections. It ends with the
// test.
func startProgram(t *testing.T, env []string, argv func(port string) []string) *program {
	t.Helper()
	p := &program{Port: freePort(t)}
	args := argv(strconv.Itoa(p.Port))
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(append(os.Environ(), "PORT="+strconv.Itoa(p.Port)), env...)
	cmd.Stdout, cmd.Stderr = &p.logs, &p.logs
	require.NoError(t, cmd.Start(), installFirst)
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended matters only while it starts
		close(done)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-done:
		case <-time.After(endOfProgramWaits): // some wait for their clients
			_ = cmd.Process.Kill()
			<-done
		}
		if t.Failed() {
			t.Logf("log of %v:\n%s", args, p.logs.String())
		}
	})
	require.Eventually(t, func() bool {
		select {
		case <-done:
			t.Errorf("%v ended (%s): %s", args, installFirst, p.logs.String())
			return true
		default:
		}
		c, err := net.DialTimeout("tcp", p.addr(), time.Second)
		if err != nil {
			return false
		}
		return !errors.Is(c.Close(), net.ErrClosed)
	}, patience, 20*time.Millisecond, "it does not listen")
	require.False(t, t.Failed())
	return p
}

func (p *program) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Port)) }
