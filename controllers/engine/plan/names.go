package plan

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"

	"github.com/ksctl/gitops/stacks"
)

// maxNameBytes is the maximum length of the name of an object (DNS1123SubdomainMaxLength of
// k8s.io/apimachinery). No API server has longer ones.
const maxNameBytes = 253

// CheckName returns an error for a name or a namespace that cannot be a part of a request path, so
// that no API server has the object. Kinds have further rules, which only their API server knows.
func CheckName(ref stacks.Ref) *InvalidObjectError {
	for _, f := range []struct{ field, value string }{{"name", ref.Name}, {"namespace", ref.Namespace}} {
		why := strings.Join(content.IsPathSegmentName(f.value), ", ")
		if len(f.value) > maxNameBytes {
			why = fmt.Sprintf("may not be longer than %d bytes", maxNameBytes)
		}
		if why != "" {
			return NewInvalidObjectError("metadata.%s %s: change it", f.field, why)
		}
	}
	return nil
}

// CheckCustomName returns an error for a name that no custom resource can have. Other kinds may
// have it: a ClusterRole is called system:node.
func CheckCustomName(ref stacks.Ref) *InvalidObjectError {
	if why := strings.Join(validation.NameIsDNSSubdomain(ref.Name, false), ", "); why != "" {
		return NewInvalidObjectError("metadata.name: %s: change it", why)
	}
	return nil
}

// parseEntryID parses the id of an inventory entry. It returns an error if no object can have it.
func parseEntryID(id string) (stacks.Ref, error) {
	ref, err := stacks.ParseID(id)
	if err != nil {
		return ref, err
	}
	if err := CheckName(ref); err != nil {
		return ref, err
	}
	return ref, nil
}
