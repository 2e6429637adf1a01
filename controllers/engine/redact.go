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

// maxCauses is the maximum number of fields in a message. Further fields are only counted.
const maxCauses = 5

// typedValuePattern matches the API server's quote of a value that has the wrong type.
var typedValuePattern = regexp.MustCompile(`(?s)got &value\.valueUnstructured\{.*\}`)

// redactedMessage returns the error message of the API server for a request, without the values of
// the object that it quotes: they may be secret, and the named field of the manifest shows them.
func redactedMessage(ref stacks.Ref, err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err.Error()
	}
	s := status.Status()
	if fields := invalidFields(s.Details); apierrors.IsInvalid(err) && fields != "" {
		return fields
	}
	if text := err.Error(); typedValuePattern.MatchString(text) {
		return typedValuePattern.ReplaceAllString(text, "got another type")
	}
	secret := ref.Group == "" && ref.Kind == "Secret"
	if secret && (s.Code == http.StatusBadRequest || s.Code == http.StatusUnprocessableEntity ||
		s.Code >= http.StatusInternalServerError) {
		return fmt.Sprintf("the API server responded with %d %s; its message is withheld because it may contain "+
			"values of the Secret", s.Code, s.Reason)
	}
	return err.Error()
}

// invalidFields returns the invalid fields of an object with the reasons, as text.
func invalidFields(details *metav1.StatusDetails) string {
	if details == nil {
		return ""
	}
	var out []string
	for _, c := range details.Causes {
		if c.Field != "" && c.Field != "<nil>" {
			out = append(out, c.Field+": "+redactValue(c.Message))
		}
	}
	if more := len(out) - maxCauses; more > 0 {
		out = append(out[:maxCauses], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, "; ")
}

// redactValue removes the value from the message of a field.Error, with everything that cannot be
// told apart from the value.
func redactValue(message string) string {
	kind, rest, _ := strings.Cut(message, ": ")
	switch kind {
	case field.ErrorTypeRequired.String(), field.ErrorTypeForbidden.String(), field.ErrorTypeTooLong.String(),
		field.ErrorTypeTooShort.String():
		return message // these messages contain no value
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
