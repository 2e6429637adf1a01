// Package manifests finds the document of an object in a tree of files, and edits it in place.
//
// These files count below the folder of the Git target:
//
//   - If the folder has a kustomization, the files that it lists, also through other kustomizations
//     and components.
//   - Otherwise, as with Flux: all YAML and JSON files of folders without a kustomization in them or
//     above them, and the files that the outermost kustomizations list. Names that begin with a dot,
//     and symbolic links, are ignored.
//
// The namespace of a document is that of the outermost kustomization that sets one, else its own. A
// document can be edited if it is the only one of the object, makes no other object, and the built
// object differs from it only in the namespace and in added labels and annotations. Everything else
// is a ConflictError: lists, encrypted files, anchors, files outside the folder, and kustomizations
// that cannot be built. Kustomizations that only list local files and set a namespace are not
// built, so that a broken file blocks no other object. It matters only for an object that no other
// file has, if the file contains its kind and name.
//
// A document is edited as text, field by field, so that all other bytes are kept. Where that is not
// possible, the document is encoded again with its comments. Each result is parsed and rendered
// again, and must be the desired object.
package manifests

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Key identifies an object. Any version of the group matches.
type Key struct{ Group, Kind, Namespace, Name string }

// String describes the object for messages: Deployment.apps web/frontend.
func (k Key) String() string {
	kind, name := k.Kind, k.Name
	if k.Group != "" {
		kind += "." + k.Group
	}
	if k.Namespace != "" {
		name = k.Namespace + "/" + name
	}
	return kind + " " + name
}

// Document is the one document of an object.
type Document struct {
	// File is its path in the repository, with slashes.
	File string
	// Hash is the SHA-256 of the bytes of the document, in hex.
	Hash string
	// Object is the object as written, with the namespace that a kustomization sets.
	Object *unstructured.Unstructured
}

// ConflictError means that the repository does not have the object in one place that can be edited.
type ConflictError struct {
	Key Key
	// File and Reason are for the user. File may be a folder.
	File, Reason string
	// NotFound is true if there is no document of the object, and one can be created.
	NotFound bool
	// Err is the error in full, for logs: it may quote files of others. nil if Reason has it all.
	Err error
}

// Error implements error.
func (e *ConflictError) Error() string {
	if e.File == "" {
		return fmt.Sprintf("%s: %s", e.Key, e.Reason)
	}
	return fmt.Sprintf("%s: %s: %s", e.Key, e.File, e.Reason)
}

func conflict(key Key, file, format string, args ...any) *ConflictError {
	return &ConflictError{Key: key, File: file, Reason: oneLine(fmt.Sprintf(format, args...))}
}

// mayBe returns true if a key with further fields can be another one.
func (k Key) mayBe(other Key) bool {
	return (k.Kind == "" || k.Kind == other.Kind && (k.Group == "" || k.Group == other.Group)) &&
		(k.Name == "" || k.Name == other.Name)
}

// oneLine joins the lines of a text.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// groupOf returns the group of an apiVersion.
func groupOf(apiVersion string) string {
	if group, _, ok := strings.Cut(apiVersion, "/"); ok {
		return group
	}
	return ""
}
