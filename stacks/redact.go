package stacks

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/ksctl/gitops/stacks/generated"
	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/problem"
	"github.com/ksctl/gitops/stacks/sops"
)

// shortestSecret is the minimum length in bytes of a redacted value. Shorter values would make the
// whole message unreadable.
const shortestSecret = 4

// redactor removes values that are not public from messages. Messages of template engines may
// contain such values.
type redactor struct {
	// replacer is nil if there are more than maxRedactedBytes of secret values.
	replacer *strings.Replacer
	// secret is true if there are secret values at all.
	secret bool
}

// maxRedactedBytes is the maximum total size of secret values to search for in messages. Above it,
// withheldMessage replaces every message.
const maxRedactedBytes = 1 << 20

// withheldMessage replaces a message that may contain secret values.
const withheldMessage = "the error message is withheld: it may contain decrypted values, " +
	"and there are too many of them to redact"

// redactorFor returns a redactor of all inputs of a render that are not public, and of new
// generated values.
func redactorFor(tree *source.Tree, req *Request, created map[string]*generated.Values) redactor {
	secrets := decryptedSecrets(tree, req.Decrypted)
	if req.Generate.Policy == generated.Keep {
		for _, byComponent := range []map[string]*generated.Values{req.Generate.Values, created} {
			for _, v := range byComponent {
				secrets = append(secrets, v.Secrets()...)
			}
		}
	}
	secret := len(secrets) > 0
	for _, in := range req.Choices.Values {
		if in.Public {
			continue
		}
		secret = true
		if in.TargetPath != "" {
			secrets = append(secrets, SecretTexts(in.Data)...)
			continue
		}
		m, err := parseValues(in, nil)
		if err != nil {
			// The values cannot be parsed: every line may be secret.
			secrets = append(secrets, strings.Split(string(in.Data), "\n")...)
			continue
		}
		secrets = append(secrets, scalars(m)...)
	}
	for i := range req.Choices.ParametersFrom {
		if in := &req.Choices.ParametersFrom[i]; in.Secret {
			secret = true
			secrets = append(secrets, in.secrets()...)
		}
	}
	total := 0
	for _, value := range secrets {
		total += len(value)
	}
	if total > maxRedactedBytes {
		return redactor{secret: true}
	}
	var encodings []string
	for _, value := range secrets {
		quoted := strconv.Quote(value)
		encodings = append(encodings, value, quoted[1:len(quoted)-1], base64.StdEncoding.EncodeToString([]byte(value)))
		if strings.HasPrefix(value, "-----BEGIN") {
			continue // its lines are values, too; the words of the first and the last one are no secrets
		}
		// Messages are folded and truncated, so single words are redacted, too.
		encodings = append(encodings, strings.FieldsFunc(value, func(r rune) bool {
			return unicode.IsSpace(r) || strings.ContainsRune("\"'`{}()", r)
		})...)
	}
	slices.SortFunc(encodings, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	var pairs []string
	for _, form := range slices.Compact(encodings) {
		if len(form) >= shortestSecret {
			pairs = append(pairs, form, "***")
		}
	}
	return redactor{replacer: strings.NewReplacer(pairs...), secret: secret}
}

// scalars returns the strings and numbers in values.
func scalars(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case int64, float64:
		return []string{fmt.Sprint(v)}
	case map[string]any:
		return scalars(slices.Collect(maps.Values(v)))
	case []any:
		var out []string
		for _, item := range v {
			out = append(out, scalars(item)...)
		}
		return out
	}
	return nil
}

// redactError redacts the messages of all errors. It drops their causes, which may contain secret
// values, except for context errors.
func (m redactor) redactError(err error) error {
	var out Errors
	for _, e := range problem.Flatten(err) {
		own := *e
		own.Message = m.redact(own.Message)
		if m.secret && !errors.Is(e.Err, context.Canceled) && !errors.Is(e.Err, context.DeadlineExceeded) {
			own.Err = nil
		}
		out = append(out, &own)
	}
	return out.Err()
}

// redact replaces secret values in a message by "***".
func (m redactor) redact(message string) string {
	if m.replacer == nil {
		return withheldMessage
	}
	return m.replacer.Replace(message)
}

// decryptedSecrets returns the values of decrypted files that are not in plain text in the
// encrypted file. Names and kinds, for example, are in plain text if only the data of a Secret is
// encrypted.
func decryptedSecrets(tree *source.Tree, plain map[string][]byte) (out []string) {
	for name, data := range plain {
		stored, _ := tree.ReadRaw(name, source.MaxFile) //nolint:errcheck // stored is nil in case of an error
		f, _ := sops.Detect(name, stored)
		readable := map[string]bool{}
		for _, v := range leafValues(f, stored) {
			readable[v] = true
		}
		for _, v := range leafValues(f, data) {
			if readable[v] {
				continue
			}
			out = append(out, v)
			if raw, err := base64.StdEncoding.DecodeString(v); err == nil {
				out = append(out, string(raw)) // the data of a Secret
			}
		}
	}
	return out
}

// leafValues returns the values of a file, or every line if the file cannot be parsed.
func leafValues(f sops.Format, data []byte) (out []string) {
	switch f {
	case sops.YAML, sops.JSON:
		docs, err := document.Parse("", data)
		if err != nil {
			break
		}
		for _, doc := range docs {
			out = appendScalars(out, doc.Root)
		}
		return out
	case sops.Dotenv, sops.INI:
		for line := range strings.Lines(string(data)) {
			if _, value, ok := strings.Cut(line, "="); ok {
				out = append(out, strings.Trim(strings.TrimSpace(value), `"'`))
			}
		}
		return out
	}
	for line := range strings.Lines(string(data)) {
		out = append(out, strings.TrimSpace(line))
	}
	return out
}

// appendScalars appends the scalars of a document except for keys. It skips aliases: their anchors
// are visited anyway.
func appendScalars(out []string, n *yaml.Node) []string {
	switch n.Kind {
	case yaml.ScalarNode:
		switch n.ShortTag() {
		case "!!null", "!!bool":
			return out
		}
		return append(out, n.Value)
	case yaml.MappingNode:
		for i := 1; i < len(n.Content); i += 2 {
			out = appendScalars(out, n.Content[i])
		}
	case yaml.SequenceNode:
		for _, item := range n.Content {
			out = appendScalars(out, item)
		}
	}
	return out
}
