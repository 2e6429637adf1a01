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

// versionTimeout bounds the run of a program that prints its version.
const versionTimeout = 30 * time.Second

var printedVersion = regexp.MustCompile(`\bv?(\d+\.\d+\.\d+\S*)`)

// checkedVersions caches the paths of programs with a matching version, because each start of a
// cluster checks them.
var checkedVersions sync.Map

// checkVersion returns an error if a program has another minor version than the one that would be
// built, because its API or flags may differ. A tool without VersionArgs is not checked.
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
		return fmt.Errorf("printing the version of %s: %w\n%s", path, err, out)
	}
	printed := printedVersion.FindSubmatch(out)
	if printed == nil {
		return fmt.Errorf("the output of %s contains no version: %q", path, out)
	}
	got := "v" + string(printed[1])
	if semver.MajorMinor(got) != semver.MajorMinor(want) {
		return fmt.Errorf("%s is version %s, but %s.x is needed; unset %s, or provide that version",
			path, got, semver.MajorMinor(want), AssetsVariable)
	}
	checkedVersions.Store(path, true)
	return nil
}
