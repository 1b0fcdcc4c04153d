package deps_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "patchbay.dev/"

// allowed is the import table: what each package may import of ours. It is the
// table of the design; where it has more, the comment says why.
var allowed = map[string][]string{
	"cmd/patchbay": {"*"},
	"e2e":          {"*"},
	// bench: measures what is built, with the gateway's own Envoy configuration.
	"bench": {"envoy", "internal/private", "internal/tune"},

	// router: pure decisions. session.Table answers its one question about a
	// session, from memory; a copy of its types here would only be converted.
	"router": {"registry", "internal/mcp", "internal/jsonrpc", "internal/session"},
	// registry/store: the catalogs on disk.
	"registry/store": {"registry", "internal/config", "internal/atomicfile"},
	"registry":       {"internal/config", "internal/mcp", "internal/jsonrpc"},
	"extproc":        {"router", "registry", "internal/*"},
	"broker":         {"router", "registry", "internal/*"},
	"envoy":          {"registry", "internal/config", "internal/mcp", "internal/private", "internal/calls"},

	"internal/jsonrpc":    {},
	"internal/sse":        {},
	"internal/atomicfile": {},
	"internal/private":    {},
	"internal/mcp":        {"internal/jsonrpc"},
	"internal/config":     {},
	// internal/session: keys and ended sessions are files, replaced or made whole.
	"internal/session":  {"internal/atomicfile"},
	"internal/metrics":  {},
	"internal/calls":    {},
	"internal/demo":     {},
	"internal/deps":     {},
	"internal/tune":     {},
	"internal/mcptest":  {"internal/mcp"},
	"internal/admin":    {"registry", "internal/config"},
	"internal/reload":   {"internal/config"},
	"internal/upstream": {"registry", "internal/config", "internal/mcp", "internal/jsonrpc", "internal/private", "internal/sse"},
}

// testOnly are packages that only tests may import.
var testOnly = []string{"internal/mcptest"}

func TestImports(t *testing.T) {
	files := goFiles(t)
	require.NotEmpty(t, files)
	for _, file := range files {
		pkg := path.Dir(filepath.ToSlash(file))
		may, known := allowed[pkg]
		if !assert.True(t, known, "%s is not in the table: add it, with what it may import", pkg) {
			continue
		}
		isTest := strings.HasSuffix(file, "_test.go")
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, spec := range f.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			imported, ours := strings.CutPrefix(name, module)
			if !ours || imported == pkg {
				continue
			}
			if slices.Contains(testOnly, imported) {
				assert.True(t, isTest, "%s imports %s, which is for tests", file, imported)
				continue
			}
			assert.True(t, isTest || permits(may, imported), "%s may not import %s: see the table in internal/deps", file, imported)
		}
	}
}

func permits(may []string, pkg string) bool {
	return slices.ContainsFunc(may, func(m string) bool {
		prefix, all := strings.CutSuffix(m, "*")
		return m == pkg || all && strings.HasPrefix(pkg, prefix)
	})
}

// Every package says what it is for, how it flows and how it is shared.
func TestPackageComments(t *testing.T) {
	documented := map[string]bool{}
	for _, file := range goFiles(t) {
		pkg := path.Dir(filepath.ToSlash(file))
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.ParseComments|parser.PackageClauseOnly)
		require.NoError(t, err)
		documented[pkg] = documented[pkg] || len(f.Doc.Text()) > 60
	}
	for pkg, ok := range documented {
		assert.True(t, ok, "%s has no package comment", pkg)
	}
}

const root = "../.."

// goFiles lists the module's Go files, without those of other modules in it.
func goFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		if d.IsDir() {
			name := d.Name()
			if rel != "." && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "testdata" || otherModule(p)) {
				return filepath.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(p, ".go") {
			files = append(files, rel)
		}
		return nil
	})
	require.NoError(t, err)
	return files
}

func otherModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}
