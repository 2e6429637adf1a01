package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "apps.ksctl.com", Version: "v1"}

// SchemeGroupVersion is GroupVersion under the name that generated clients use.
var SchemeGroupVersion = GroupVersion

// Kinds of this package that users create.
const (
	KsctlInstallKind = "KsctlInstall"
	KsctlKindKind    = "KsctlKind"
	KsctlRemoveKind  = "KsctlRemove"
	KsctlSourceKind  = "KsctlSource"
)

// Resource returns a resource of this group, such as ksctlinstalls.
func Resource(resource string) schema.GroupResource {
	return GroupVersion.WithResource(resource).GroupResource()
}

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&KsctlInstall{}, &KsctlInstallList{},
		&KsctlSource{}, &KsctlSourceList{},
		&KsctlInventory{}, &KsctlInventoryList{},
		&KsctlRemove{}, &KsctlRemoveList{},
		&KsctlKind{}, &KsctlKindList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
