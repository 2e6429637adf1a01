package scriptsapi

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	// maxMetadata is the maximum size of the metadata of an upload.
	maxMetadata = 1 << 20
	// maxBindings is the maximum number of bindings of a script.
	maxBindings = 64
	// maxBindingText is the maximum size of the text of a binding.
	maxBindingText = 5 << 10
)

// Types of bindings.
const (
	bindingText    = "plain_text"
	bindingSecret  = "secret_text"
	bindingInherit = "inherit"
)

// binding is an environment variable of a script.
type binding struct {
	Type string `json:"type"`
	Name string `json:"name"`
	Text string `json:"text,omitempty"`
	// OldName is the name of the binding that one of type inherit renames.
	OldName string `json:"old_name,omitempty"`
	// VersionID is the version that a binding of type inherit comes from.
	VersionID string `json:"version_id,omitempty"`
}

// metadata is the configuration of a script in an upload.
type metadata struct {
	MainModule        string    `json:"main_module,omitempty"`
	BodyPart          string    `json:"body_part,omitempty"`
	CompatibilityDate string    `json:"compatibility_date,omitempty"`
	Bindings          []binding `json:"bindings,omitempty"`
	KeepBindings      []string  `json:"keep_bindings,omitempty"`
}

// main returns the name of the part that handles requests.
func (m *metadata) main() string {
	if m.MainModule != "" {
		return m.MainModule
	}
	return m.BodyPart
}

// bindingName is an identifier of JavaScript and the key of a Secret.
var bindingName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// withoutEffect are fields of the metadata that change nothing here: they describe an upload, or
// what a cluster has anyway.
var withoutEffect = []string{"annotations", "observability", "usage_model"}

// parseMetadata parses the metadata of an upload. Fields and bindings that have no counterpart here
// are errors, so that nothing is dropped without a message.
func parseMetadata(content []byte, maxDate string) (*metadata, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(content, &fields); err != nil {
		return nil, invalidf("part \"metadata\" is no JSON object")
	}
	known := []string{"main_module", "body_part", "compatibility_date", "bindings", "keep_bindings"}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if slices.Contains(known, name) || slices.Contains(withoutEffect, name) || isEmpty(fields[name]) {
			continue
		}
		return nil, invalidf("metadata.%s is not supported: remove it", clip(name))
	}
	var m metadata
	if err := json.Unmarshal(content, &m); err != nil {
		return nil, invalidf("part \"metadata\" has a field of a wrong type: see Cloudflare's documentation of the " +
			"metadata of multipart uploads")
	}
	if (m.MainModule == "") == (m.BodyPart == "") {
		return nil, invalidf("metadata has none or both of main_module and body_part: set main_module to the name of " +
			"the part with the ES module that handles requests")
	}
	if err := checkDate(m.CompatibilityDate, maxDate); err != nil {
		return nil, err
	}
	// Scripts have no bindings of other types.
	m.KeepBindings = slices.DeleteFunc(m.KeepBindings, func(t string) bool { return t != bindingText })
	return &m, m.checkBindings()
}

// isEmpty reports whether a field has no value, or one that turns off what it is for.
func isEmpty(value json.RawMessage) bool {
	value = bytes.TrimSpace(value)
	return slices.Contains([]string{"null", "false", `""`, "[]", "{}"}, string(value))
}

func checkDate(date, maxDate string) error {
	if date == "" {
		return nil
	}
	if _, err := time.Parse(time.DateOnly, date); err != nil {
		return invalidf("compatibility_date %q is no date: use the form 2026-01-31", clip(date))
	}
	if date > maxDate {
		return invalidf("compatibility_date %s is later than that of the runtime: use at most %s", date, maxDate)
	}
	return nil
}

func (m *metadata) checkBindings() error {
	if len(m.Bindings) > maxBindings {
		return failf(400, codeTooManyBindings, "the script has %d bindings: use at most %d", len(m.Bindings),
			maxBindings)
	}
	names := map[string]bool{}
	for _, b := range m.Bindings {
		if err := b.check(); err != nil {
			return err
		}
		if names[b.Name] {
			return invalidf("binding %s occurs twice: rename one of them", b.Name)
		}
		names[b.Name] = true
	}
	return nil
}

func (b *binding) check() error {
	name := clip(b.Name)
	switch b.Type {
	case bindingText, bindingSecret, bindingInherit:
	default:
		return invalidf("binding %q has the type %q, which is not supported: only %s and %s are; remove the binding",
			name, clip(b.Type), bindingText, bindingSecret)
	}
	switch {
	case !bindingName.MatchString(b.Name):
		return invalidf("binding %q has an invalid name: use at most 128 letters, digits and _", name)
	case len(b.Text) > maxBindingText:
		return failf(400, codeBindingTooLarge, "binding %s has %d bytes: use at most %d", b.Name, len(b.Text),
			maxBindingText)
	case strings.ContainsRune(b.Text, 0):
		return invalidf("binding %s has a NUL character, which no environment variable has: remove it", b.Name)
	case b.VersionID != "":
		return invalidf("binding %s has a version_id, which is not supported: remove it", b.Name)
	}
	return nil
}

// clip returns a text of a client for a message.
func clip(text string) string {
	if len(text) > maxClip {
		text = strings.ToValidUTF8(text[:maxClip], "") + "…"
	}
	return text
}

// maxClip is the maximum length of a text of a client in a message.
const maxClip = 100
