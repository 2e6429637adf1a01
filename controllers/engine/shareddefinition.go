package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// recreationGrace is how long an owner that uses a CustomResourceDefinition of another owner lets
// that one create it again after somebody deleted it. It covers a restart of the controller, and
// requests that are throttled.
const recreationGrace = time.Minute

// maxSchemaPaths is the maximum number of paths in a warning about schemas.
const maxSchemaPaths = 5

// definitionUse is what is known of a CustomResourceDefinition of another owner that an owner uses.
// Losing it costs a GET.
type definitionUse struct {
	// owner is the display name of the other owner.
	owner string
	// missingSince is the time at which it was found missing; zero while it exists.
	missingSince time.Time
	// compared identifies the two contents whose schemas were compared, and warning is the result.
	compared, warning string
}

// formerOwners returns the owners that create CustomResourceDefinitions again which the owner uses,
// see plan.Snapshot.FormerOwners.
func (a *executor) formerOwners(now time.Time) map[string]string {
	out := map[string]string{}
	for id, use := range a.engine.definitions.all(a.ownerKey) {
		if use.missingSince.IsZero() {
			use.missingSince = now
		}
		until := use.missingSince.Add(recreationGrace)
		if _, exists := a.indexed(id); a.desired[id] && !exists && now.Before(until) {
			out[id] = use.owner
			a.settleBy(until)
		}
	}
	return out
}

// updateDefinitions drops the CustomResourceDefinitions that the owner no longer uses, and records
// since when the others are missing. Only a pass that knows what the owner desires calls it.
func (a *executor) updateDefinitions() {
	now := a.engine.clock.Now()
	for id, use := range a.engine.definitions.all(a.ownerKey) {
		l, exists := a.indexed(id)
		switch {
		case exists:
			use.missingSince = time.Time{}
		case use.missingSince.IsZero():
			use.missingSince = now
		}
		if own := exists && l.Mark.Owner == a.ownerKey; !a.desired[id] || own ||
			!exists && !now.Before(use.missingSince.Add(recreationGrace)) {
			a.engine.definitions.reset(a.ownerKey, id)
			continue
		}
		a.engine.definitions.record(a.ownerKey, id, use)
	}
}

// indexed returns an object as the index knows it.
func (a *executor) indexed(id string) (live.Object, bool) {
	ref, err := stacks.ParseID(id)
	if err != nil {
		return live.Object{}, false
	}
	return a.target.Index.Get(ref)
}

// settleBy makes the owner plan again at a time, or sooner.
func (a *executor) settleBy(at time.Time) {
	if a.settleAt.IsZero() || at.Before(a.settleAt) {
		a.settleAt = at
	}
}

// compareSchemas adds a warning to the report for each shared CustomResourceDefinition whose
// schemas differ from those that the owner desires. It reads a definition once for each change.
func (a *executor) compareSchemas(ctx context.Context, shared []plan.Action) {
	for i := range shared {
		act := &shared[i]
		l := act.Live
		use := a.engine.definitions.get(a.ownerKey, act.Item.ID)
		use.owner, use.missingSince = plan.OwnerDisplayName(l.Mark.Owner), time.Time{}
		if compared := string(l.UID) + l.OwnedHash + act.Item.ContentHash; use.compared != compared {
			warning, err := a.compareSchema(ctx, act, use.owner)
			if err == nil {
				use.compared = compared
			}
			use.warning = warning
		}
		a.engine.definitions.record(a.ownerKey, act.Item.ID, use)
		if use.warning != "" {
			a.report.Warnings = append(a.report.Warnings, use.warning)
		}
	}
}

// compareSchema returns a warning if the schemas of a CustomResourceDefinition differ, or if the
// account may not read it. The next pass reads it again after an error.
func (a *executor) compareSchema(ctx context.Context, act *plan.Action, owner string) (string, error) {
	wanted, err := a.owner.Manifest(ctx, act.Item)
	if err != nil {
		return "", err
	}
	u, err := a.resource(act.Item).Get(ctx, act.Item.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("%s belongs to %s, and the service account may not get it: its schemas are not compared",
			act.Item.Ref, owner), err
	case err != nil:
		return "", err
	}
	actual, err := json.Marshal(u)
	if err != nil {
		return "", err
	}
	paths, err := schemaDifferences(wanted, actual)
	if err != nil || len(paths) == 0 {
		return "", err
	}
	more := ""
	if n := len(paths) - maxSchemaPaths; n > 0 {
		paths, more = paths[:maxSchemaPaths], fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("%s belongs to %s, and its schemas differ from those of the stack at %s%s", act.Item.Ref,
		owner, strings.Join(paths, ", "), more), nil
}

// sameDefinition reports whether an owner that uses a CustomResourceDefinition needs no other plan.
func sameDefinition(planned, now *live.Object) bool {
	return planned.Mark == now.Mark && planned.Readiness == now.Readiness && planned.OwnedHash == now.OwnedHash &&
		planned.Deleting == now.Deleting && planned.Serves.Equal(now.Serves)
}
