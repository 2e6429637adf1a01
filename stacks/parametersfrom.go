package stacks

import (
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/internal/values"
	"github.com/ksctl/gitops/stacks/problem"
)

// ParametersInput is the content of a ConfigMap or a Secret with parameters of the stack. No
// message contains it.
type ParametersInput struct {
	// Source describes the object for messages, such as "ConfigMap site".
	Source string `json:"source"`
	// Key and TargetPath are those of the ParametersReference.
	Key        string `json:"key,omitempty"`
	TargetPath string `json:"targetPath,omitempty"`
	// Secret is true if the content is secret.
	Secret bool `json:"secret,omitempty"`
	// Data of the object. With a key, other keys do not count.
	Data map[string][]byte `json:"data"`
}

// NewParametersInput returns the parameters of a reference to an object with some data. It returns
// false if there is no object, or no such key.
func NewParametersInput(ref appsv1.ParametersReference, data map[string][]byte) (ParametersInput, bool) {
	if ref.Key != "" {
		value, ok := data[ref.Key]
		if !ok {
			return ParametersInput{}, false
		}
		data = map[string][]byte{ref.Key: value}
	}
	return ParametersInput{Source: ref.Kind + " " + ref.Name, Key: ref.Key, TargetPath: ref.TargetPath,
		Secret: ref.Kind == "Secret", Data: data}, data != nil
}

// maxIgnoredKeys bounds the keys in the warning about keys that are no parameter.
const maxIgnoredKeys = 10

// readParameters returns the parameters from ConfigMaps and Secrets, merged, those of Secrets as
// *expr.Secret. Keys that are no parameter are ignored with one warning.
func (r *resolver) readParameters(schema map[string]any) (out map[string]any) {
	var ignored []string
	for i := range r.choices.ParametersFrom {
		in := &r.choices.ParametersFrom[i]
		layer, unknown, errs := in.read(schema)
		for _, err := range errs {
			r.add("", "spec.parametersFrom", "%s", err.Message).Suggestion = err.Suggestion
		}
		for _, key := range unknown {
			ignored = append(ignored, fmt.Sprintf("%s, key %q", in.Source, key))
		}
		if in.Secret {
			layer, _ = conceal(schema, nil, layer).(map[string]any)
		}
		out = mergeParameters(out, layer)
	}
	if more := len(ignored) - maxIgnoredKeys; more > 0 {
		ignored = append(ignored[:maxIgnoredKeys], fmt.Sprintf("and %d more", more))
	}
	if len(ignored) > 0 {
		r.warn("spec.parametersFrom has keys that are no parameter of the stack; they are ignored: %s",
			strings.Join(ignored, "; "))
	}
	return out
}

// read returns the parameters, and the keys that are no parameter, with the schema of the
// parameters.
func (in *ParametersInput) read(schema map[string]any) (out map[string]any, unknown []string, errs Errors) {
	if in.TargetPath != "" {
		out, err := in.readTarget(schema)
		return out, nil, err
	}
	properties, _ := schema["properties"].(map[string]any)
	out = map[string]any{}
	if in.Key != "" {
		document, err := in.document()
		if err != nil {
			return nil, nil, Errors{err}
		}
		for name, value := range document {
			if _, known := properties[name]; !known {
				unknown = append(unknown, name)
				continue
			}
			out[name] = value
		}
		slices.Sort(unknown)
		return out, unknown, nil
	}
	for _, key := range slices.Sorted(maps.Keys(in.Data)) {
		property, known := properties[key]
		if !known {
			unknown = append(unknown, key)
			continue
		}
		value, err := readParameter(property, in.Data[key])
		if err != nil {
			errs = append(errs, in.errorf(key, key, err))
			continue
		}
		out[key] = value
	}
	return out, unknown, errs
}

// readTarget returns the parameter at the target path.
func (in *ParametersInput) readTarget(schema map[string]any) (map[string]any, Errors) {
	path := splitDotted(in.TargetPath)
	property, ok := schemaAt(schema, path)
	if !ok {
		e := problem.Newf("%s, key %q: targetPath %q is no parameter of the stack", in.Source, in.Key, in.TargetPath)
		e.Suggestion = problem.Nearest(in.TargetPath, values.Properties(schema))
		return nil, Errors{e}
	}
	value, err := readParameter(property, in.Data[in.Key])
	if err != nil {
		return nil, Errors{in.errorf(in.Key, in.TargetPath, err)}
	}
	for _, key := range slices.Backward(path) {
		value = map[string]any{key: value}
	}
	out, _ := value.(map[string]any)
	return out, nil
}

func (in *ParametersInput) errorf(key, parameter string, err error) *Error {
	return problem.Newf("%s, key %q: parameter %q %s", in.Source, key, parameter, err)
}

// document returns the YAML document of the key.
func (in *ParametersInput) document() (map[string]any, *Error) {
	value, line, ok := parseYAML(in.Data[in.Key])
	m, isMap := value.(map[string]any)
	if !ok || value != nil && !isMap {
		return nil, problem.Newf("%s, key %q: line %d: not one YAML mapping with unique keys", in.Source, in.Key,
			max(line, 1))
	}
	return m, nil
}

// parseYAML parses the only YAML document of a text; the value of an empty text is nil. For a text
// with an error it returns false, and the line, because errors of the parser quote the text.
func parseYAML(data []byte) (value any, line int, ok bool) {
	docs, err := document.Parse("", data)
	if err == nil && len(docs) == 1 {
		value, err = document.Kubectl.Value("", docs[0].Root)
	}
	for _, e := range problem.Flatten(err) {
		return nil, e.Line, false
	}
	return value, 0, len(docs) < 2
}

var (
	integerPattern = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	numberPattern  = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)
)

// readParameter reads a text as the type of a schema: text as it is, numbers and booleans as in
// JSON, everything else as YAML. Its errors do not contain the text.
func readParameter(schema any, data []byte) (any, error) {
	text := string(data)
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("must be text in UTF-8")
	}
	switch typeName(schema) {
	case "string":
		return text, nil
	case "boolean":
		if text != "true" && text != "false" {
			return nil, fmt.Errorf("must be true or false")
		}
		return text == "true", nil
	case "integer":
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || !integerPattern.MatchString(text) {
			return nil, fmt.Errorf("must be an integer of at most 64 bits, without spaces and line breaks")
		}
		return n, nil
	case "number":
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && integerPattern.MatchString(text) {
			return n, nil
		}
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsInf(n, 0) || !numberPattern.MatchString(text) {
			return nil, fmt.Errorf("must be a number, without spaces and line breaks")
		}
		return n, nil
	}
	value, line, ok := parseYAML(data)
	if !ok {
		return nil, fmt.Errorf("must be one YAML document; line %d is not", max(line, 1))
	}
	_, isMap := value.(map[string]any)
	_, isList := value.([]any)
	switch typeName(schema) {
	case "object":
		if !isMap {
			return nil, fmt.Errorf("must be a YAML mapping")
		}
	case "array":
		if !isList {
			return nil, fmt.Errorf("must be a YAML list")
		}
	}
	return value, nil
}

// typeName returns the type of a schema besides null; empty if it may allow several.
func typeName(schema any) string {
	m, _ := schema.(map[string]any)
	switch t := m["type"].(type) {
	case string:
		return t
	case []any:
		t = slices.DeleteFunc(slices.Clone(t), func(name any) bool { return name == "null" })
		if len(t) == 1 {
			name, _ := t[0].(string)
			return name
		}
	}
	return ""
}

// schemaAt returns the schema of the parameter at a path; nil where every value is allowed.
func schemaAt(schema any, path []string) (any, bool) {
	for i, key := range path {
		m, _ := schema.(map[string]any)
		properties, listed := m["properties"].(map[string]any)
		more, open := m["additionalProperties"]
		next, known := properties[key]
		switch {
		case known:
			schema = next
		case open && more != false:
			schema = more
		case i > 0 && !listed && !open && (typeName(m) == "" || typeName(m) == "object"):
			schema = nil
		default:
			return nil, false
		}
	}
	return schema, true
}

// splitDotted splits a path at its dots. A dot after a backslash is part of a key.
func splitDotted(path string) []string {
	parts := strings.Split(strings.ReplaceAll(path, `\.`, "\x00"), ".")
	for i := range parts {
		parts[i] = strings.ReplaceAll(parts[i], "\x00", ".")
	}
	return parts
}

// secrets returns the values of a Secret that no message may contain.
func (in *ParametersInput) secrets() (out []string) {
	for _, data := range in.Data {
		out = append(out, SecretTexts(data)...)
	}
	return out
}

// maxEncodings is how often a value of a Secret may be encoded in base64.
const maxEncodings = 3

// SecretTexts returns the texts that the content of a key of a Secret may become: its lines, the
// values of a YAML document, those of Helm's --set, and what is encoded in base64.
func SecretTexts(data []byte) []string { return appendSecretTexts(nil, data, maxEncodings) }

func appendSecretTexts(out []string, data []byte, encodings int) []string {
	text := string(data)
	texts := append(strings.Split(text, "\n"), text, strings.ReplaceAll(text, `\`, ""))
	if list, ok := strings.CutPrefix(text, "{"); ok {
		texts = append(texts, strings.Split(strings.TrimSuffix(list, "}"), ",")...)
	}
	if value, _, ok := parseYAML(data); ok {
		texts = append(texts, scalars(value)...)
	}
	out = append(out, texts...)
	for _, t := range texts {
		decoded, err := base64.StdEncoding.DecodeString(t)
		if err != nil {
			decoded, err = base64.RawStdEncoding.DecodeString(t)
		}
		if encodings > 0 && err == nil && len(decoded) >= shortestSecret && utf8.Valid(decoded) {
			out = appendSecretTexts(out, decoded, encodings-1)
		}
	}
	return out
}
