package stacks

import (
	"bytes"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"
)

// WriteYAML writes the objects of a render as YAML documents in the order in which
// they are applied, each with a comment that says where it came from.
func (r Result) WriteYAML(w io.Writer) error {
	var b bytes.Buffer
	for _, c := range r.Components {
		for _, o := range c.Objects {
			text, err := yaml.JSONToYAML(o.Manifest)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, "---\n# component: %s%s\n%s", c.Name, o.origin(), text)
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (o Object) origin() string {
	var b bytes.Buffer
	if o.File != "" {
		fmt.Fprintf(&b, "  file: %s", o.File)
		if o.Line > 0 {
			fmt.Fprintf(&b, ":%d", o.Line)
		}
	}
	if o.Hook != nil {
		fmt.Fprintf(&b, "  hook: %s %d", o.Hook.Phase, o.Hook.Weight)
	}
	return b.String()
}
