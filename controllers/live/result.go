package live

import (
	"encoding/json"
	"strings"
)

// ResultAnnotation is the result of a Job that has ended: the termination message of its Pod that
// ended last, or empty without one.
const ResultAnnotation = "ksctl.com/result"

// MaxResultBytes bounds a result. The kubelet allows as much for the message of a container.
const MaxResultBytes = 4 << 10

// ParseResult returns a result, which is a JSON value; nil if the text is not one, or too long.
func ParseResult(text string) json.RawMessage {
	text = strings.TrimSpace(text)
	if text == "" || len(text) > MaxResultBytes || !json.Valid([]byte(text)) {
		return nil
	}
	return json.RawMessage(text)
}

// ResultMessage returns the message in the result of a Job; empty if it has none.
func (o *Object) ResultMessage() string {
	var result struct {
		Message string `json:"message"`
	}
	if len(o.Result) == 0 || json.Unmarshal(o.Result, &result) != nil {
		return ""
	}
	return strings.Join(strings.Fields(result.Message), " ")
}

// projectResult sets the result of a Job.
func (o *Object) projectResult(annotations map[string]any) {
	text, ok := annotations[ResultAnnotation].(string)
	if !ok || o.Ref.GroupKind() != jobKind {
		return
	}
	o.ResultRecorded, o.Result = true, ParseResult(text)
}
