package stacks

import (
	"bytes"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"
)

// WriteYAML writes the rendered objects as YAML documents in apply order. A comment above each
// object names its component, file and hook.
func (r Result) WriteYAML(w io.Writer) error {
	var b bytes.Buffer
	for _, c := range r.Components {
		for _, o := range c.Objects {
			if o.Hook != nil && o.Hook.Phase == HookInactive {
				continue
			}
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
