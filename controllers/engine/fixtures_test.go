package engine

import (
	"errors"
	"fmt"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

var (
	me = plan.OwnerKey{Installation: "x", Cluster: plan.LocalCluster, Kind: "KsctlInstall", Namespace: "ns",
		Name: "me"}
	other = plan.OwnerKey{Installation: "x", Cluster: plan.LocalCluster, Kind: "KsctlInstall", Namespace: "ns",
		Name: "other"}
)

const base = "AAAAAAAAAAAAAAAA"

var errCrash = errors.New("crash")

func ref(name string) stacks.Ref { return stacks.Ref{Kind: "ConfigMap", Namespace: "ns", Name: name} }

func item(component, name string) plan.Item {
	r := ref(name)
	return plan.Item{Object: stacks.Object{Ref: r, Version: "v1"}, ID: r.ID(), ContentHash: "want",
		Component: component}
}

func entry(name string, state appsv1.EntryState) appsv1.InventoryEntry {
	e := appsv1.InventoryEntry{ID: ref(name).ID(), Version: "v1", Component: "c", State: state}
	if state != appsv1.EntryIntended {
		e.UID, e.Hash, e.Baseline = "uid", "want", base
	}
	return e
}

func numbered(n int) appsv1.InventoryEntry {
	return appsv1.InventoryEntry{ID: ref(fmt.Sprintf("n%05d", n)).ID(), Version: "v1", Component: "c",
		State: appsv1.EntryIntended}
}

func liveObject(name string, change ...func(*live.Object)) live.Object {
	o := live.Object{Ref: ref(name), Version: "v1", UID: "uid", Readiness: live.Current, OwnedHash: base,
		Mark: live.Mark{Owner: me.String(), ID: ref(name).ID()}}
	for _, f := range change {
		f(&o)
	}
	return o
}
