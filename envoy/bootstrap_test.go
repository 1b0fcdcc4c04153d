package envoy

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/config"
)

var update = flag.Bool("update", false, "rewrite deploy/bootstrap.yaml")

// served is what `patchbay serve` listens on by default.
var served = BootstrapConfig{
	Listen: "127.0.0.1:8080", ExtProc: "127.0.0.1:8091", Broker: "127.0.0.1:8092", XDS: "127.0.0.1:8093",
}

func TestBootstrapGolden(t *testing.T) {
	const golden = "../deploy/bootstrap.yaml"
	got, err := Bootstrap(served)
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(golden, got, 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got), "run the test with -update")
}

func TestBootstrapIsValid(t *testing.T) {
	cert, key := writeCertificate(t, newAuthority(t), "localhost")
	dir := t.TempDir()
	for name, cfg := range map[string]BootstrapConfig{
		"serve": served,
		"tls": {
			Listen: "127.0.0.1:8443", TLS: &config.ListenerTLS{CertFile: cert, KeyFile: key},
			ExtProc: "127.0.0.1:8091", Broker: "127.0.0.1:8092", XDS: "127.0.0.1:8093",
		},
		"sockets": {
			Listen: ":8080", AdminSocket: filepath.Join(dir, "admin.sock"),
			ExtProc: "unix://" + dir + "/extproc.sock", Broker: "unix://" + dir + "/broker.sock", XDS: "unix://" + dir + "/xds.sock",
		},
		"names": {Listen: "localhost:8080", ExtProc: "localhost:8091", Broker: "broker.test:8092", XDS: "xds.test:8093"},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := Bootstrap(cfg)
			require.NoError(t, err)
			path := filepath.Join(t.TempDir(), "bootstrap.yaml")
			require.NoError(t, os.WriteFile(path, b, 0o600))
			out, err := exec.Command(envoyPath(t), "--mode", "validate", "-c", path, "-l", "warning").CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.NotContains(t, string(out), "deprecated")
		})
	}
}

func TestBootstrapRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*BootstrapConfig)
		want   string
	}{
		"no port":          {func(c *BootstrapConfig) { c.Listen = "127.0.0.1" }, `listen: address "127.0.0.1": expected host:port`},
		"port 0":           {func(c *BootstrapConfig) { c.Listen = "127.0.0.1:0" }, "expected a port from 1 to 65535"},
		"port name":        {func(c *BootstrapConfig) { c.Broker = "localhost:http" }, `broker address "localhost:http": expected a port`},
		"relative socket":  {func(c *BootstrapConfig) { c.ExtProc = "unix://run/x.sock" }, "expected an absolute path"},
		"long socket":      {func(c *BootstrapConfig) { c.XDS = "unix:///" + string(make([]byte, 120)) }, "choose a shorter directory"},
		"half certificate": {func(c *BootstrapConfig) { c.TLS = &config.ListenerTLS{CertFile: "a.pem"} }, "both certFile and keyFile"},
		"negative limit":   {func(c *BootstrapConfig) { c.BodyLimit = -1 }, "must not be negative"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := served
			tc.change(&cfg)
			_, err := Bootstrap(cfg)
			assert.ErrorContains(t, err, tc.want)
		})
	}
}
