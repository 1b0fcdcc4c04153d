package envoy

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func envoyPath(t *testing.T) string {
	t.Helper()
	path, err := Find()
	require.NoError(t, err)
	return path
}
