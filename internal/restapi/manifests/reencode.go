package manifests

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// reencode changes the value of a document, and encodes all of it, with its comments.
func reencode(text []byte, desired map[string]any, newLine bool) (out []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			out, err = nil, fmt.Errorf("%w: the encoder panicked: %v", errNotEditable, v)
		}
	}()
	var doc yaml.Node
	if err := yaml.NewDecoder(bytes.NewReader(text)).Decode(&doc); err != nil {
		return nil, err
	}
	if len(doc.Content) != 1 {
		return nil, errNotEditable
	}
	root := doc.Content[0]
	s := styleOf(text, root)
	current, err := valueOf(root, 0)
	if err == nil {
		err = setNode(root, current, desired)
	}
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(s.step)
	if s.listStep == 0 {
		encoder.CompactSeqIndent()
	}
	if err := encoder.Encode(&doc); err != nil {
		return nil, err
	}
	if err := encoder.Close(); err != nil {
		return nil, err
	}
	out = b.Bytes()
	if newLine {
		out = append([]byte("\n"), out...)
	}
	if s.eol != "\n" {
		out = bytes.ReplaceAll(out, []byte("\n"), []byte(s.eol))
	}
	return out, nil
}

// setNode changes a node from old to updated, and keeps the comments of what stays.
func setNode(n *yaml.Node, old, updated any) error {
	if equal(old, updated) {
		return nil
	}
	switch updated := updated.(type) {
	case map[string]any:
		if old, ok := old.(map[string]any); ok && n.Kind == yaml.MappingNode {
			return setMapping(n, old, updated)
		}
	case []any:
		if old, ok := old.([]any); ok && n.Kind == yaml.SequenceNode {
			return setSequence(n, old, updated)
		}
	}
	replacement, err := nodeOf(updated)
	if err != nil {
		return err
	}
	replacement.HeadComment, replacement.LineComment, replacement.FootComment = n.HeadComment, n.LineComment,
		n.FootComment
	if n.Kind == yaml.ScalarNode && replacement.Kind != yaml.ScalarNode && n.LineComment != "" {
		// The encoder writes it where it would end the first line of the collection.
		replacement.HeadComment, replacement.LineComment = strings.TrimSpace(n.HeadComment+"\n"+n.LineComment), ""
	}
	*n = *replacement
	return nil
}

func setMapping(n *yaml.Node, old, updated map[string]any) error {
	var content []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		v, ok := updated[key.Value]
		if !ok {
			continue
		}
		if err := setNode(value, old[key.Value], v); err != nil {
			return err
		}
		if value.Kind != yaml.ScalarNode && len(value.Content) == 0 && key.LineComment != "" {
			// The encoder writes {} and [] below such a comment, where they are not valid.
			key.HeadComment, key.LineComment = strings.TrimSpace(key.HeadComment+"\n"+key.LineComment), ""
		}
		content = append(content, key, value)
	}
	for _, k := range fieldOrder(updated) {
		if _, ok := old[k]; ok {
			continue
		}
		key := &yaml.Node{Kind: yaml.ScalarNode, Tag: stringTag, Value: k}
		if !isPlain(k, false) {
			key.Style = yaml.DoubleQuotedStyle
		}
		value, err := nodeOf(updated[k])
		if err != nil {
			return err
		}
		content = append(content, key, value)
	}
	n.Content = content
	return nil
}

func setSequence(n *yaml.Node, old, updated []any) error {
	content := make([]*yaml.Node, 0, len(updated))
	for _, p := range align(old, updated) {
		if p.updated < 0 {
			continue
		}
		if p.old < 0 {
			item, err := nodeOf(updated[p.updated])
			if err != nil {
				return err
			}
			content = append(content, item)
			continue
		}
		if err := setNode(n.Content[p.old], old[p.old], updated[p.updated]); err != nil {
			return err
		}
		content = append(content, n.Content[p.old])
	}
	n.Content = slices.Clip(content)
	return nil
}

// nodeOf returns a new node.
func nodeOf(v any) (*yaml.Node, error) {
	s := defaultStyle()
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte("k:"+s.afterColon(v, 0, "")+"\n"), &doc); err != nil {
		return nil, err
	}
	return doc.Content[0].Content[1], nil
}
