// Package tools builds, from pinned Go modules, the programs that end-to-end suites run against: a
// complete Kubernetes control plane, Flux, Argo CD, Helm and the programs of a node.
//
// Each group of programs has a subfolder with its own go.mod, so that its dependencies and replace
// directives do not affect the library's module graph. The table in table.go maps each program to
// its subfolder. Versions are defined only in those go.mod files. The subfolder fluxapi
// builds nothing: tests read the types that it pins.
//
// Built programs are cached in <user cache>/ksctl-gitops/tools, in one folder per program, version,
// platform and build recipe. So a second run builds nothing, and a changed recipe never uses an old
// binary. If KUBEBUILDER_ASSETS names a folder, Build uses the programs in it and builds only the
// others; it rejects a program of another minor version. Download fetches release binaries for the
// demo.
//
// Linux and macOS are supported. Building needs the go command and the module cache or a module
// proxy.
package tools
