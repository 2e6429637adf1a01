package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ksctl/gitops/stacks"
)

// maxCauses is how many fields an answer names before it counts.
const maxCauses = 5

// typed is how the API server repeats a value that has the wrong type.
var typed = regexp.MustCompile(`(?s)got &value\.valueUnstructured\{.*\}`)

// answer is what the API server said of a request for an object, without the
// values that it repeats: they may be secret, and in the manifest they stand
// under the field that is named.
func answer(ref stacks.Ref, err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err.Error()
	}
	s := status.Status()
	if fields := fieldsOf(s.Details); apierrors.IsInvalid(err) && fields != "" {
		return fields
	}
	if text := err.Error(); typed.MatchString(text) {
		return typed.ReplaceAllString(text, "got another type")
	}
	secret := ref.Group == "" && ref.Kind == "Secret"
	if secret && (s.Code == http.StatusBadRequest || s.Code == http.StatusUnprocessableEntity || s.Code >= http.StatusInternalServerError) {
		return fmt.Sprintf("the API server answers %d %s; the rest is withheld, for it may repeat the Secret", s.Code, s.Reason)
	}
	return err.Error()
}

// fieldsOf names the fields that an object is invalid for, and why.
func fieldsOf(details *metav1.StatusDetails) string {
	if details == nil {
		return ""
	}
	var out []string
	for _, c := range details.Causes {
		if c.Field != "" && c.Field != "<nil>" {
			out = append(out, c.Field+": "+withoutValue(c.Message))
		}
	}
	if more := len(out) - maxCauses; more > 0 {
		out = append(out[:maxCauses], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, "; ")
}

// withoutValue takes the value out of what field.Error says of a field. What
// can't be told from the value goes with it.
func withoutValue(message string) string {
	kind, rest, _ := strings.Cut(message, ": ")
	switch kind {
	case field.ErrorTypeRequired.String(), field.ErrorTypeForbidden.String(), field.ErrorTypeTooLong.String(), field.ErrorTypeTooShort.String():
		return message // these repeat none
	}
	var end int
	if quoted, err := strconv.QuotedPrefix(rest); err == nil {
		end = len(quoted)
	} else {
		var value json.RawMessage
		d := json.NewDecoder(strings.NewReader(rest))
		if d.Decode(&value) != nil {
			return kind
		}
		end = int(d.InputOffset())
	}
	if detail := rest[end:]; strings.HasPrefix(detail, ": ") {
		return kind + detail
	}
	return kind
}
