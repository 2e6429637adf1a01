package tools

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"sync"
	"time"

	"golang.org/x/mod/semver"
)

// versionTimeout bounds a program that is asked for its version.
const versionTimeout = 30 * time.Second

var printedVersion = regexp.MustCompile(`\bv?(\d+\.\d+\.\d+\S*)`)

// checkedVersions are the paths of programs whose version fits: each start of a cluster asks.
var checkedVersions sync.Map

// checkVersion refuses a program of another minor version than the one that would be built:
// the API that it serves, or its flags, may differ. A tool without VersionArgs passes.
func checkVersion(ctx context.Context, tool Tool, path, want string) error {
	if tool.VersionArgs == nil {
		return nil
	}
	if _, checked := checkedVersions.Load(path); checked {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, tool.VersionArgs...).Output()
	if err != nil {
		return fmt.Errorf("asking %s for its version: %w\n%s", path, err, out)
	}
	printed := printedVersion.FindSubmatch(out)
	if printed == nil {
		return fmt.Errorf("%s does not print a version: %q", path, out)
	}
	got := "v" + string(printed[1])
	if semver.MajorMinor(got) != semver.MajorMinor(want) {
		return fmt.Errorf("%s is version %s, but %s.x is needed; unset %s, or provide that version",
			path, got, semver.MajorMinor(want), AssetsVariable)
	}
	checkedVersions.Store(path, true)
	return nil
}
