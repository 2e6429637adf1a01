package install

import (
	"testing"

	"github.com/ksctl/gitops/stacks/generated"
)

func TestGeneratedValuesAreRedacted(t *testing.T) {
	redact := redactGenerated(map[string]*generated.Values{"web": {Calls: map[string]generated.Value{
		"randAlphaNum#0@templates/a.yaml": {Text: "x7Gbq9Kp"}, "randNumeric#0@templates/a.yaml": {Text: "12"}}}},
		map[valuesKey]cachedValues{{"Secret", "db"}: {data: map[string][]byte{"values.yaml": []byte(
			"db: {password: \"hunter \\\"2\\\"\", pin: 735712349876}\n"), "token": []byte("abcdef-token\n")}}})
	const denied = `admission webhook "w" denied the request: password "x7Gbq9Kp" (eDdHYnE5S3A=) has 12 characters`
	if got := redact(
		denied); got != `admission webhook "w" denied the request: password "***" (***) has 12 characters` {
		t.Error(got)
	}
	const values = `"hunter "2"", 735712349876, abcdef-token, YWJjZGVmLXRva2Vu, db`
	if got := redact(values); got != `"***", ***, ***, ***, db` {
		t.Error(got)
	}
	if redactGenerated(nil, nil) != nil {
		t.Error("without values there is nothing to redact")
	}
}
