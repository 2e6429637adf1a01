package manager

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/artifact/git"
)

// parseFlags parses args as the controller command does.
func parseFlags(t *testing.T, args ...string) *Options {
	t.Helper()
	var o Options
	fs := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	o.BindFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return &o
}

func TestDefaultOptionsAreValid(t *testing.T) {
	if err := parseFlags(t).Validate(); err != nil {
		t.Error(err)
	}
}

// Each limit flag sets the limit of its name.
func TestLimitFlagsSetOptions(t *testing.T) {
	o := parseFlags(t, "--artifact-max-download-bytes=1", "--artifact-max-bytes=2", "--artifact-max-file-bytes=3",
		"--artifact-max-files=4", "--artifact-max-depth=5",
		"--git-max-ref-bytes=6", "--git-max-pack-bytes=7", "--git-max-object-bytes=8", "--git-max-objects=9",
		"--render-workers=10", "--render-timeout=11s", "--render-max-memory-bytes=12", "--render-max-output-bytes=13",
		"--chart-max-bytes=14", "--chart-max-files=15", "--webhook-max-bytes=16")
	if want := (artifact.Limits{DownloadBytes: 1, UnpackedBytes: 2, FileBytes: 3, Files: 4,
		Depth: 5}); o.ArtifactLimits != want {
		t.Errorf("artifacts: %+v", o.ArtifactLimits)
	}
	o.GitLimits.Tree = artifact.Limits{}
	if want := (git.Limits{RefBytes: 6, PackBytes: 7, ObjectBytes: 8, Objects: 9}); o.GitLimits != want {
		t.Errorf("Git: %+v", o.GitLimits)
	}
	if want := (RenderOptions{Workers: 10, Timeout: 11 * time.Second, MemoryBytes: 12,
		OutputBytes: 13}); o.Render != want {
		t.Errorf("rendering: %+v", o.Render)
	}
	if want := (stacks.ChartLimits{Bytes: 14, Files: 15}); o.ChartLimits != want {
		t.Errorf("charts: %+v", o.ChartLimits)
	}
	if o.WebhookBytes != 16 {
		t.Errorf("webhooks: %d", o.WebhookBytes)
	}
}

// The error for an invalid option contains the name of its flag.
func TestValidateNamesInvalidFlag(t *testing.T) {
	for _, arg := range []string{
		"--owner-id=A", "--owner-id=", "--concurrent=0", "--interval-jitter-percentage=100", "--artifact-timeout=0s",
		"--artifact-timeout=-1s",
		"--render-workers=-1", "--render-timeout=0s", "--render-max-memory-bytes=1000000",
		"--render-max-output-bytes=1000", "--render-max-output-bytes=9000000000",
		"--no-remote-bases=false", "--chart-max-bytes=0", "--chart-max-files=0", "--webhook-max-bytes=0",
		"--pprof-addr=:6060", "--pprof-addr=0.0.0.0:6060", "--pprof-addr=localhost", "--pprof-addr=10.0.0.1:6060",
	} {
		name, _, _ := strings.Cut(arg, "=")
		if err := parseFlags(t, arg).Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", arg, err)
		}
	}
	for name, args := range map[string]string{
		"--rest-cert-file":  "--rest-addr=:1 --rest-key-file=x",
		"--rest-key-file":   "--rest-addr=:1 --rest-cert-file=x",
		"--rest-git-source": "--rest-addr=:1 --rest-cert-file=x --rest-key-file=x --rest-git-path=x",
		"GitRepository or KsctlSource": "--rest-addr=:1 --rest-cert-file=x --rest-key-file=x " +
			"--rest-git-source=Bucket/a/b",
		"--rest-git-secret": "--rest-addr=:1 --rest-cert-file=x --rest-key-file=x " +
			"--rest-git-source=KsctlSource/a/b --rest-git-path=x --rest-git-secret=x",
		"--rest-git-path": "--rest-addr=:1 --rest-cert-file=x --rest-key-file=x --rest-git-source=KsctlSource/a/b",
	} {
		err := parseFlags(t, strings.Fields(args)...).Validate()
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", args, err)
		}
	}
	if err := parseFlags(t, "--rest-addr=:1", "--rest-cert-file=x", "--rest-key-file=x",
		"--rest-git-source=GitRepository/a/b", "--rest-git-path=.", "--rest-git-secret=a/c").Validate(); err != nil {
		t.Error(err)
	}
	for _, arg := range []string{"--render-workers=0", "--no-remote-bases", "--no-remote-bases=true",
		"--pprof-addr=127.0.0.1:6060", "--pprof-addr=[::1]:0"} {
		if err := parseFlags(t, arg).Validate(); err != nil {
			t.Errorf("%s: %v", arg, err)
		}
	}
}
