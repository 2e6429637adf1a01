package install

import (
	"reflect"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// Components that a status has already keep their status.
func TestAddRenderedComponentsKeepsKnownComponents(t *testing.T) {
	has := []appsv1.ComponentStatus{{Name: "a", Version: "1", Ready: true}, {Name: "left"}}
	rendered := []stacks.RenderedComponent{{Name: "a", Version: "2"}, {Name: "new", Version: "3"}}
	want := []appsv1.ComponentStatus{{Name: "a", Version: "1", Ready: true}, {Name: "left"},
		{Name: "new", Version: "3"}}
	if got := addRenderedComponents(has, rendered); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	if got := addRenderedComponents(want, rendered); !reflect.DeepEqual(got, want) {
		t.Errorf("added twice: %+v", got)
	}
}
