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
	Value                map[string]any
	Hook                 *Hook
	File                 string
	Line                 int
	// Component that renders the object.
	Component string
}

// Hook marks an object as a step before the other objects, after them (Post), or before their
// removal (PreRemove).
type Hook struct {
	Post           bool
	PreRemove      bool
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

// Parse parses the objects of a file. lines is false if the user cannot see the lines, such as
// those of a rendered template.
func Parse(file string, data []byte, lines bool) ([]*Object, error) {
	docs, err := document.Parse(file, data)
	if err != nil {
		if !lines {
			return nil, moveLinesToMessage(err)
		}
		return nil, err
	}
	var out []*Object
	var errs problem.Errors
	for _, doc := range docs {
		objects, err := FromNode(document.Kubectl, file, doc.Root)
		errs.Add(err)
		out = append(out, objects...)
	}
	if !lines {
		for _, o := range out {
			o.Line = 0
		}
		if len(errs) > 0 {
			return nil, moveLinesToMessage(errs)
		}
	}
	return out, errs.Err()
}

// moveLinesToMessage moves the line numbers of errors to their messages.
func moveLinesToMessage(err error) error {
	errs := problem.Flatten(err)
	for _, e := range errs {
		if e.Line > 0 {
			e.Message = fmt.Sprintf("%s (line %d of the rendered template)", e.Message, e.Line)
			e.Line = 0
		}
	}
	return errs.Err()
}

// FromNode returns the object of one document, or the objects of a List.
func FromNode(dialect document.Dialect, file string, node *yaml.Node) ([]*Object, error) {
	if node.Kind != yaml.MappingNode {
		return nil, problem.Errorf(file, node.Line, "an object is expected here, not %s", document.KindName(node))
	}
	value, err := dialect.Map(file, node)
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
			objects, err := FromNode(dialect, file, item)
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

// listItems returns the items of a List, and false for other objects. The kind of a custom resource
// may also end in List, but such an object has a name.
func listItems(value map[string]any, node *yaml.Node) ([]*yaml.Node, bool) {
	kind, _ := value["kind"].(string)
	if _, isList := value["items"].([]any); !isList || !strings.HasSuffix(kind, "List") {
		return nil, false
	}
	if meta, ok := value["metadata"].(map[string]any); ok && meta["name"] != nil {
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
	if _, there := meta["generateName"]; there {
		return fail("the %s uses metadata.generateName; set metadata.name instead", o.Kind)
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
