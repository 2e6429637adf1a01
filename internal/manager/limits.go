package manager

import (
	"github.com/spf13/pflag"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/artifact/git"
)

// bindArtifactLimits adds one flag per limit of an artifact, with d as defaults.
func bindArtifactLimits(fs *pflag.FlagSet, l *artifact.Limits, d artifact.Limits) {
	fs.Int64Var(&l.DownloadBytes, "artifact-max-download-bytes", d.DownloadBytes,
		"The maximum size of a downloaded artifact, in bytes.")
	fs.Int64Var(&l.UnpackedBytes, "artifact-max-bytes", d.UnpackedBytes,
		"The maximum size of an unpacked artifact, in bytes.")
	fs.Int64Var(&l.FileBytes, "artifact-max-file-bytes", d.FileBytes,
		"The maximum size of a file in an artifact, in bytes.")
	fs.IntVar(&l.Files, "artifact-max-files", d.Files, "The maximum number of files and folders in an artifact.")
	fs.IntVar(&l.Depth, "artifact-max-depth", d.Depth, "The maximum number of elements of a path in an artifact.")
}

// bindGitLimits adds one flag per limit of a Git repository, with d as defaults. The limits of its
// tree are those of the artifact that is built from it.
func bindGitLimits(fs *pflag.FlagSet, l *git.Limits, d git.Limits) {
	fs.Int64Var(&l.RefBytes, "git-max-ref-bytes", d.RefBytes,
		"The maximum size of the list of branches and tags of a Git repository, in bytes.")
	fs.Int64Var(&l.PackBytes, "git-max-pack-bytes", d.PackBytes,
		"The maximum size of a pack downloaded from a Git repository, in bytes.")
	fs.Int64Var(&l.ObjectBytes, "git-max-object-bytes", d.ObjectBytes,
		"The maximum uncompressed size of the files, folders and commits that are read from a Git repository, "+
			"in bytes.")
	fs.IntVar(&l.Objects, "git-max-objects", d.Objects,
		"The maximum number of files, folders and commits that are read from a Git repository.")
}

// bindChartLimits adds one flag per limit of a rendered chart, with d as defaults.
func bindChartLimits(fs *pflag.FlagSet, l *stacks.ChartLimits, d stacks.ChartLimits) {
	fs.Int64Var(&l.Bytes, "chart-max-bytes", d.Bytes,
		"The maximum unpacked size of a rendered chart, including its subcharts, in bytes.")
	fs.IntVar(&l.Files, "chart-max-files", d.Files,
		"The maximum number of files of a rendered chart, including its subcharts.")
}
