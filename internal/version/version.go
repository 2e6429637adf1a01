// Package version holds the version of this build.
package version

import "runtime/debug"

// version is set by the linker in release builds.
var version = ""

// String returns the version of the release, else of the module, else the commit.
func String() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return "0.0.0-" + s.Value[:min(12, len(s.Value))]
		}
	}
	return "0.0.0-dev"
}
