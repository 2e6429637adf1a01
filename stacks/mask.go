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

	"github.com/ksctl/gitops/stacks/internal/problem"
)

// shortestSecret is what is worth hiding; shorter values would blot out the whole message.
const shortestSecret = 4

// mask hides values that are not public in messages: those of template engines may
// repeat them.
type mask struct {
	replacer *strings.Replacer
	secret   bool
}

func newMask(inputs []ValuesInput) mask {
	var found []string
	secret := false
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
		own.Message = m.replacer.Replace(own.Message)
		if m.secret && !errors.Is(e.Err, context.Canceled) && !errors.Is(e.Err, context.DeadlineExceeded) {
			own.Err = nil
		}
		out = append(out, &own)
	}
	return out.Err()
}

func (m mask) warnings(list []string) {
	for i := range list {
		list[i] = m.replacer.Replace(list[i])
	}
}
