package install

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/stacks"
)

func TestDifferentMessages(t *testing.T) {
	for _, tc := range []struct {
		objects, path, messages int
		end                     string
	}{
		{1, 1, 1, "ConfigMap shop/c000 /x"},
		{2, 1, 1, "ConfigMap shop/c000 /x; ConfigMap shop/c001 /x"},
		{3, 700, 3, "x"},
		{20, 2000, 10, "; and 10 more objects"},
	} {
		e := &engine.DifferentError{Component: strings.Repeat("c", 63)}
		for i := range tc.objects {
			e.Objects = append(e.Objects, engine.DifferentObject{
				Ref:   stacks.Ref{Kind: "ConfigMap", Namespace: "shop", Name: fmt.Sprintf("c%03d", i)},
				Paths: []string{"/" + strings.Repeat("x", tc.path)}})
		}
		got := differentMessages(e)
		if len(got) != tc.messages || !strings.HasSuffix(got[len(got)-1], tc.end) {
			t.Errorf("%d objects: %d messages, the last ends with %s", tc.objects, len(got), got[len(got)-1])
		}
		for _, m := range got {
			if len(m) > 1024 {
				t.Errorf("%d objects: a message has %d bytes", tc.objects, len(m))
			}
		}
	}
}
