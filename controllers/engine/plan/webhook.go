package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ksctl/gitops/controllers/live"
)

// awaitsWorkloads returns why a webhook configuration is not created yet: a workload that answers
// it is not ready, and the webhook may refuse the Pods of that workload. It is empty for all other
// actions: an update, a restored object or one that is taken over does not wait.
func awaitsWorkloads(in *Snapshot, c *Component, a *Action) string {
	if a.Verb != VerbCreate || a.Reason != ReasonNew || len(a.Item.AnsweredBy) == 0 || in.Existing[a.Item.ID] {
		return ""
	}
	var names []string
	why := ""
	for i := range c.Items {
		it := &c.Items[i]
		if it.Step > a.Item.Step || !slices.Contains(a.Item.AnsweredBy, it.ID) {
			continue // a later step waits for the webhook configuration
		}
		w, ready := decideItem(in, it)
		if ready && it.ignoresHealth() && w.Live != nil { // the webhook needs it nevertheless
			ready = w.Live.Readiness == live.Current
		}
		if !ready {
			names = append(names, it.Ref.String())
			if why == "" && w.Message != "" {
				why = ": " + w.Message
			}
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("%s waits until %s, which answers it, is ready%s", a.Item.Ref, strings.Join(names, " and "), why)
}
