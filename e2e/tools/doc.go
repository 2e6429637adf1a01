// Package tools builds, from pinned Go modules, the programs that end-to-end
// suites run against: a whole Kubernetes control plane, and what later suites
// put on top of it.
//
// Each group of programs has a folder with a go.mod of its own beside this
// file, so that its dependencies and replace lines stay out of the library's
// graph. The table in table.go says which program comes from which folder;
// versions are written down in those go.mod files and nowhere else.
//
// Built programs are kept in <user cache>/ksctl-gitops/tools, one folder per
// program, version, platform and build recipe, so a second run takes no time
// and an old binary can't pass for a new one. Where KUBEBUILDER_ASSETS names a
// folder, programs found in it are used and only the others built; one of another minor
// version is refused. Download gets release binaries for the demo.
//
// Linux and macOS are supported; building needs the go command and the module
// cache or a module proxy.
package tools
