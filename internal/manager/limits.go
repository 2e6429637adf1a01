package manager

import (
	"github.com/spf13/pflag"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/artifact/git"
)

// bindLimits adds a flag per bound of an artifact.
func bindLimits(fs *pflag.FlagSet, l *artifact.Limits, d artifact.Limits) {
	fs.Int64Var(&l.DownloadBytes, "artifact-max-download-bytes", d.DownloadBytes, "The largest artifact that is downloaded, in bytes.")
	fs.Int64Var(&l.UnpackedBytes, "artifact-max-bytes", d.UnpackedBytes, "The largest artifact when unpacked, in bytes.")
	fs.Int64Var(&l.FileBytes, "artifact-max-file-bytes", d.FileBytes, "The largest file of an artifact, in bytes.")
	fs.IntVar(&l.Files, "artifact-max-files", d.Files, "The most files and folders of an artifact.")
	fs.IntVar(&l.Depth, "artifact-max-depth", d.Depth, "The most elements of a path in an artifact.")
}

// bindGitLimits adds a flag per bound of a Git repository; those of its tree are
// those of the artifact that is made of it.
func bindGitLimits(fs *pflag.FlagSet, l *git.Limits, d git.Limits) {
	fs.Int64Var(&l.RefBytes, "git-max-ref-bytes", d.RefBytes, "The longest list of branches and tags of a Git repository, in bytes.")
	fs.Int64Var(&l.PackBytes, "git-max-pack-bytes", d.PackBytes, "What is downloaded of a Git repository at most, in bytes.")
	fs.Int64Var(&l.ObjectBytes, "git-max-object-bytes", d.ObjectBytes, "The files, folders and commits of a Git repository that are looked at, uncompressed, in bytes.")
	fs.IntVar(&l.Objects, "git-max-objects", d.Objects, "The most files, folders and commits of a Git repository that are looked at.")
}

// bindChartLimits adds a flag per bound of a chart that is rendered.
func bindChartLimits(fs *pflag.FlagSet, l *stacks.ChartLimits, d stacks.ChartLimits) {
	fs.Int64Var(&l.Bytes, "chart-max-bytes", d.Bytes, "The largest chart that is rendered, with its subcharts and unpacked, in bytes.")
	fs.IntVar(&l.Files, "chart-max-files", d.Files, "The most files of a chart that is rendered, with those of its subcharts.")
}
