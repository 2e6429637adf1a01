// Package manifest converts documents into Kubernetes objects. It validates and normalizes them,
// sets their namespaces, and sorts them in apply order.
package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/problem"
)

// Object is one manifest and its origin.
type Object struct {
	Group, Version, Kind string
	Namespace, Name      string
	NamespaceDefaulted   bool
	// FormerName is the name before a prefix or a suffix, if there is one.
	FormerName string
	// NameHash is the hash in the name of an object with generateName; empty for others.
	NameHash string
	Value    map[string]any
	Hook     *Hook
	// CreateOnly is true for a CustomResourceDefinition that is never changed.
	CreateOnly bool
	// Initial are the fields that only the first release of a chart sets.
	Initial []InitialField
	File    string
	Line    int
	// Component that renders the object.
	Component string
}

// Hook marks an object as a step before the other objects, after them (Post), or before their
// removal (PreRemove).
type Hook struct {
	Post      bool
	PreRemove bool
	// PreDelete and PostDelete are true for a hook that is created before and after the removal of
	// the other objects, and Test for one that is created on request. NotApplied is true if it is
	// not applied with the other objects.
	PreDelete, PostDelete, Test, NotApplied bool
	// Inactive is true for a hook of other events than the one that applies.
	Inactive bool
	// AlsoPost is true for a hook before the other objects that is one after them, too.
	AlsoPost bool
	// Stays is true for an ordinary object that is applied when a hook of its name would be.
	Stays          bool
	Weight         int
	DeletePolicies []string
}

// ID identifies the object within a cluster.
func (o *Object) ID() string {
	return o.Group + "/" + o.Kind + "/" + o.Namespace + "/" + o.Name
}

// String describes the object for messages: Deployment.apps "monitoring/prometheus".
func (o *Object) String() string {
	kind := o.Kind
	if o.Group != "" {
		kind += "." + o.Group
	}
	name := o.Name
	if o.Namespace != "" {
		name = o.Namespace + "/" + name
	}
	return fmt.Sprintf("%s %q", kind, name)
}

// Location returns file:line, or only the file if the line is unknown.
func (o *Object) Location() string {
	if o.Line > 0 {
		return fmt.Sprintf("%s:%d", o.File, o.Line)
	}
	return o.File
}

// Parse parses the objects of a file. As for kubectl, its last line ends with a newline.
func Parse(file string, data []byte) ([]*Object, error) {
	docs, err := document.Parse(file, endWithNewline(data))
	if err != nil {
		return nil, err
	}
	var out []*Object
	var errs problem.Errors
	for _, doc := range docs {
		objects, err := FromNode(document.Kubectl, file, doc.Root)
		errs.Add(err)
		out = append(out, objects...)
	}
	return out, errs.Err()
}

func endWithNewline(data []byte) []byte {
	if bytes.HasSuffix(data, []byte("\n")) {
		return data
	}
	return append(data[:len(data):len(data)], '\n')
}

// FromNode returns the object of one document, or the objects of a List.
func FromNode(dialect document.Dialect, file string, node *yaml.Node) ([]*Object, error) {
	return objectsOf(file, node, func(n *yaml.Node) (map[string]any, error) { return dialect.Map(file, n) })
}

// objectsOf is FromNode with another conversion of mappings.
func objectsOf(file string, node *yaml.Node, convert func(*yaml.Node) (map[string]any, error)) ([]*Object, error) {
	if node.Kind != yaml.MappingNode {
		return nil, problem.Errorf(file, node.Line, "an object is expected here, not %s", document.KindName(node))
	}
	value, err := convert(node)
	if err != nil {
		return nil, err
	}
	if len(value) == 0 {
		return nil, nil
	}
	if items, ok := listItems(value, node); ok {
		var out []*Object
		var errs problem.Errors
		for _, item := range items {
			objects, err := objectsOf(file, item, convert)
			errs.Add(err)
			out = append(out, objects...)
		}
		return out, errs.Err()
	}
	o, err := New(file, node.Line, value)
	if err != nil {
		return nil, err
	}
	return []*Object{o}, nil
}

// listItems returns the items of a List, and false for other objects. As for kubectl, an object
// with items is a list even if it has a name.
func listItems(value map[string]any, node *yaml.Node) ([]*yaml.Node, bool) {
	kind, _ := value["kind"].(string)
	if _, isList := value["items"].([]any); !isList || !strings.HasSuffix(kind, "List") {
		return nil, false
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value != "items" {
			continue
		}
		items := node.Content[i+1]
		if items.Kind == yaml.AliasNode {
			items = items.Alias
		}
		return items.Content, true
	}
	return nil, false
}

// New returns an Object after validation of apiVersion, kind and metadata.
func New(file string, line int, value map[string]any) (*Object, error) {
	o := &Object{Value: value, File: file, Line: line}
	fail := func(format string, args ...any) (*Object, error) {
		return nil, problem.Errorf(file, line, format, args...)
	}
	apiVersion, _ := value["apiVersion"].(string)
	if apiVersion == "" {
		return fail("the object has no apiVersion")
	}
	var slash bool
	if o.Group, o.Version, slash = strings.Cut(apiVersion, "/"); !slash {
		o.Group, o.Version = "", apiVersion
	}
	if o.Version == "" || strings.Contains(o.Version, "/") {
		return fail("the apiVersion %q is not <group>/<version>", apiVersion)
	}
	if o.Kind, _ = value["kind"].(string); o.Kind == "" {
		return fail("the object of apiVersion %s has no kind", apiVersion)
	}
	meta, ok := value["metadata"].(map[string]any)
	if !ok {
		return fail("the %s has no metadata", o.Kind)
	}
	if err := setGeneratedName(o, meta); err != nil {
		return fail("%w", err)
	}
	if o.Name, _ = meta["name"].(string); o.Name == "" {
		return fail("the %s has no metadata.name", o.Kind)
	}
	if ns, there := meta["namespace"]; there && ns != nil {
		if o.Namespace, ok = ns.(string); !ok {
			return fail("%s: metadata.namespace must be a string", o)
		}
	}
	for _, field := range []string{"labels", "annotations"} {
		if err := stringMap(meta[field]); err != "" {
			return fail("%s: metadata.%s%s", o, field, err)
		}
	}
	return o, nil
}

// HookAnnotation marks the hooks of charts.
const HookAnnotation = "helm.sh/hook"

func stringMap(v any) string {
	if v == nil {
		return ""
	}
	m, ok := v.(map[string]any)
	if !ok {
		return " must be a mapping"
	}
	for k, item := range m {
		if _, ok := item.(string); !ok && item != nil {
			return fmt.Sprintf(": the value of %q must be a string: put it in quotes", k)
		}
	}
	return ""
}

// Canonical encodes v as JSON with sorted keys and without whitespace.
func Canonical(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
