package stacks

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/problem"
)

// shortestSecret is what is worth hiding; shorter values would blot out the whole message.
const shortestSecret = 4

// mask hides values that are not public in messages: those of template engines may
// repeat them.
type mask struct {
	// replacer is nil where there is too much to look for.
	replacer *strings.Replacer
	secret   bool
}

// maxMasked bytes of secrets are looked for in a message. Of what has more, nothing is repeated.
const maxMasked = 1 << 20

// blunt stands for a message that may repeat secrets.
const blunt = "this is wrong, and what is known of it may repeat what was decrypted, which is too much to be looked for in it"

// maskOf hides what a render reads that is not public.
func maskOf(tree *source.Tree, req *Request) mask {
	return newMask(req.Choices.Values, decryptedSecrets(tree, req.Decrypted))
}

func newMask(inputs []ValuesInput, found []string) mask {
	secret := len(found) > 0
	for _, in := range inputs {
		if in.Public {
			continue
		}
		secret = true
		m, err := parseValues(in)
		if err != nil {
			// Not understood: every line may be the secret.
			found = append(found, strings.Split(string(in.Data), "\n")...)
			continue
		}
		found = append(found, scalars(m)...)
	}
	total := 0
	for _, value := range found {
		total += len(value)
	}
	if total > maxMasked {
		return mask{secret: true}
	}
	var forms []string
	for _, value := range found {
		quoted := strconv.Quote(value)
		forms = append(forms, value, quoted[1:len(quoted)-1], base64.StdEncoding.EncodeToString([]byte(value)))
		// Messages are folded and cut, so each word counts.
		forms = append(forms, strings.FieldsFunc(value, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune("\"'`{}()", r) })...)
	}
	slices.SortFunc(forms, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	var pairs []string
	for _, form := range slices.Compact(forms) {
		if len(form) >= shortestSecret {
			pairs = append(pairs, form, "***")
		}
	}
	return mask{replacer: strings.NewReplacer(pairs...), secret: secret}
}

// scalars are the leaves of values that could be secret.
func scalars(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case int64, float64:
		return []string{fmt.Sprint(v)}
	case map[string]any:
		var out []string
		for _, item := range v {
			out = append(out, scalars(item)...)
		}
		return out
	case []any:
		var out []string
		for _, item := range v {
			out = append(out, scalars(item)...)
		}
		return out
	}
	return nil
}

// err hides values in every message. The causes go, because they repeat them.
func (m mask) err(err error) error {
	var out Errors
	for _, e := range problem.All(err) {
		own := *e
		own.Message = m.hide(own.Message)
		if m.secret && !errors.Is(e.Err, context.Canceled) && !errors.Is(e.Err, context.DeadlineExceeded) {
			own.Err = nil
		}
		out = append(out, &own)
	}
	return out.Err()
}

func (m mask) warnings(list []string) {
	for i := range list {
		list[i] = m.hide(list[i])
	}
}

// hide replaces what is secret in a message.
func (m mask) hide(message string) string {
	if m.replacer == nil {
		return blunt
	}
	return m.replacer.Replace(message)
}
