package live_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/ksctl/gitops/controllers/live"
)

var getOptions = metav1.GetOptions{}

const (
	captures = "testdata/drift"
	// captureVariable is the environment variable that, set to 1, makes the specs write the
	// responses of the API server to the captures directory.
	captureVariable = "LIVE_CAPTURE"
)

// captured holds the responses of the API server before and after the change of a scenario.
type captured struct {
	Drifted  bool             `json:"drifted"`
	Kept     []live.KeptField `json:"kept,omitempty"`
	Baseline map[string]any   `json:"baseline"`
	After    map[string]any   `json:"after"`
}

func captureFile(s scenario) string {
	return filepath.Join(captures, s.mapping.GroupVersionKind.Kind+"-"+strings.ReplaceAll(s.name, " ", "-")+".json")
}

var _ = Describe("Drift detection on objects of a real API server", func() {
	for _, s := range scenarios {
		It(s.mapping.GroupVersionKind.Kind+": "+s.name, func(ctx SpecContext) {
			namespace, err := plane.Namespace(ctx, "drift")
			Expect(err).NotTo(HaveOccurred())
			u := marked(namespace, parse(s.yaml))
			if s.ignore != "" {
				annotations := u.GetAnnotations()
				annotations[live.IgnoreAnnotation] = s.ignore
				u.SetAnnotations(annotations)
			}
			before := apply(ctx, s.mapping, u)
			after := s.change(ctx, before)
			if os.Getenv(captureVariable) == "1" {
				b, err := json.MarshalIndent(captured{s.drifted, s.kept, before.Object, after.Object}, "", " ")
				Expect(err).NotTo(HaveOccurred())
				Expect(os.WriteFile(captureFile(s), append(b, '\n'), 0o600)).To(Succeed())
			}
			expectDrift(NewGomega(Fail), s, before, after)
			if s.drifted {
				g := NewGomega(Fail)
				Expect(live.Drifted(keyed(g, before), keyed(g, apply(ctx, s.mapping, u)))).
					To(BeFalse(), "another apply corrects the drift")
			}
		})
	}
})

// TestCapturedDrift checks the same scenarios with captured objects, without an API server.
func TestCapturedDrift(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.mapping.GroupVersionKind.Kind+" "+s.name, func(t *testing.T) {
			b, err := os.ReadFile(captureFile(s))
			if err != nil {
				t.Fatal(err)
			}
			var c struct {
				Baseline, After unstructured.Unstructured
			}
			if err := json.Unmarshal(b, &c); err != nil {
				t.Fatal(err)
			}
			expectDrift(NewWithT(t), s, &c.Baseline, &c.After)
		})
	}
}

func expectDrift(g Gomega, s scenario, before, after *unstructured.Unstructured) {
	baseline, err := live.Project(before)
	g.Expect(err).NotTo(HaveOccurred())
	now, err := live.Project(after)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(live.Drifted(baseline.OwnedHash, now.OwnedHash)).
		To(Equal(s.drifted), "drifted from %s to %s", baseline.OwnedHash, now.OwnedHash)
	g.Expect(live.Drifted(keyed(g, before), keyed(g, after))).To(Equal(s.drifted), "drifted, with a key for Secrets")
	g.Expect(now.KeptFields).To(Equal(s.kept), "kept fields")
	again, err := live.Project(after)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again).To(Equal(now), "a projection is a pure function of the object")
}

// keyed returns the hash of the owned fields from an index with a key.
func keyed(g Gomega, u *unstructured.Unstructured) string {
	ix, err := live.New(&rest.Config{Host: "http://localhost"}, live.Options{OwnerID: "x", SecretKey: []byte("key")})
	g.Expect(err).NotTo(HaveOccurred())
	o, err := ix.Observe(u)
	g.Expect(err).NotTo(HaveOccurred())
	return o.OwnedHash
}
