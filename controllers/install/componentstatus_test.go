package install

import (
	"reflect"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// What a status has of a component stays until more is known; what is new is named.
func TestAnnounced(t *testing.T) {
	has := []appsv1.ComponentStatus{{Name: "a", Version: "1", Ready: true}, {Name: "left"}}
	rendered := []stacks.RenderedComponent{{Name: "a", Version: "2"}, {Name: "new", Version: "3"}}
	want := []appsv1.ComponentStatus{{Name: "a", Version: "1", Ready: true}, {Name: "left"}, {Name: "new", Version: "3"}}
	if got := announced(has, rendered); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	if got := announced(want, rendered); !reflect.DeepEqual(got, want) {
		t.Errorf("named twice: %+v", got)
	}
}
