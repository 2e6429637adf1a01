// Package removal_test checks that installed objects are removed in the right order and
// completely, and that no other object is removed with them.
package removal_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/harness/leakscan"
	"github.com/ksctl/gitops/e2e/suite"
)

// soon bounds every wait in these specs.
const soon = 4 * time.Minute

// long bounds waits for hundreds of objects.
const long = 8 * time.Minute

// quiet is how long an absence must last for a spec to accept it.
const quiet = 2 * time.Second

var h *harness.Harness

func TestRemoval(t *testing.T) {
	suite.Run(t, "Removal")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	h = framework.StartScanned(ctx, cluster.Options{Audit: true}, scanner)
	framework.StartController(h, "--watch-label-selector=!"+controllerLabel)
})

// scanner collects the output of the suite's controllers, such as the preview of a removal, and
// searches it for secrets.
var scanner = &leakscan.Scanner{}

// controllerLabel is the label of installs whose spec starts a controller of its own.
const controllerLabel = "e2e.ksctl.com/own"

// startController starts a controller for the installs of one spec.
func startController(ns string) *framework.Controller {
	GinkgoHelper()
	return framework.StartController(h, "--owner-id="+ns, "--watch-label-selector="+controllerLabel+"="+ns)
}

// seedVariable repeats the random choices of a run: its value is the seed that the run printed.
const seedVariable = "KSCTL_E2E_SEED"

// seed returns the seed of a spec's random choices, and adds it to the report.
func seed() uint64 {
	GinkgoHelper()
	s := rand.Uint64()
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		s, err = strconv.ParseUint(text, 10, 64)
		Expect(err).NotTo(HaveOccurred(), seedVariable)
	}
	AddReportEntry("repeat with", fmt.Sprintf("%s=%d", seedVariable, s), ReportEntryVisibilityAlways)
	return s
}

func namespaceFor(ctx context.Context) string {
	GinkgoHelper()
	return framework.Namespace(ctx, h, "removal")
}

func configMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {value: %q}\n", name, value)
}

// publish publishes a source with a stack of one component.
func publish(ctx context.Context, ns, source, revision string, docs ...string) {
	GinkgoHelper()
	files := map[string]string{}
	for i, d := range docs {
		files[fmt.Sprintf("main/%03d.yaml", i)] = d
	}
	Expect(h.PublishSource(ctx, ns, source, revision, harness.SourceTree(harness.OneComponent, files))).To(Succeed())
}

// install creates an install of the stack in the source of the same name.
func install(ctx context.Context, ns, name string, change ...func(*appsv1.KsctlInstall)) *appsv1.KsctlInstall {
	GinkgoHelper()
	in := harness.NewInstall(ns, name)
	in.Spec.SourceRef.Name = name
	for _, f := range change {
		f(in)
	}
	Expect(h.ControlPlane.Client().Create(ctx, in)).To(Succeed())
	return in
}

// installConfigMap publishes a stack of one ConfigMap and installs it.
func installConfigMap(ctx context.Context, ns, name string, change ...func(*appsv1.KsctlInstall)) *appsv1.KsctlInstall {
	GinkgoHelper()
	publish(ctx, ns, name, "r1", configMap(name, "1"))
	return install(ctx, ns, name, change...)
}

func dependingOn(names ...string) func(*appsv1.KsctlInstall) {
	return func(in *appsv1.KsctlInstall) {
		for _, n := range names {
			in.Spec.DependsOn = append(in.Spec.DependsOn, appsv1.Dependency{Name: n})
		}
	}
}

func get(ctx context.Context, o client.Object) error {
	return h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(o), o)
}

func objectMeta(ns, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: ns, Name: name}
}

func aConfigMap(ns, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: objectMeta(ns, name)}
}

// absent reports whether an object does not exist.
func absent(ctx context.Context, o client.Object) bool {
	GinkgoHelper()
	err := get(ctx, o)
	Expect(client.IgnoreNotFound(err)).NotTo(HaveOccurred())
	return apierrors.IsNotFound(err)
}

// reports waits until the Ready condition of an install has a status and a reason, and its
// message contains all texts. An empty reason matches any.
func reports(ctx context.Context, in *appsv1.KsctlInstall, status metav1.ConditionStatus, reason string,
	texts ...string) {
	GinkgoHelper()
	Eventually(ctx, func() string {
		if err := get(ctx, in); err != nil {
			return err.Error()
		}
		c := harness.ReadyCondition(in)
		if c.Status != status || (reason != "" && c.Reason != reason) || in.Status.ObservedGeneration != in.Generation {
			return fmt.Sprintf("Ready is %s/%s: %s", c.Status, c.Reason, c.Message)
		}
		for _, t := range texts {
			if !strings.Contains(c.Message, t) {
				return fmt.Sprintf("Ready is %s/%s, and %q is not in its message: %s", c.Status, c.Reason, t, c.Message)
			}
		}
		return ""
	}, soon, 20*time.Millisecond).Should(BeEmpty(), "%s reports %s/%s", in.Name, status, reason)
}

func becomesReady(ctx context.Context, installs ...*appsv1.KsctlInstall) {
	GinkgoHelper()
	for _, in := range installs {
		reports(ctx, in, metav1.ConditionTrue, "")
	}
}

// suspend suspends an install and waits until the controller of the suite has observed that.
func suspend(ctx context.Context, in *appsv1.KsctlInstall) {
	GinkgoHelper()
	mergePatch(ctx, in, `{"spec":{"suspend":true}}`)
	Eventually(ctx, func() error { return harness.CheckSuspended(in) }, soon, 20*time.Millisecond).Should(Succeed())
}

func remove(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, o := range objects {
		Expect(client.IgnoreNotFound(h.ControlPlane.Client().Delete(ctx, o))).To(Succeed())
	}
}

// awaitGone waits until objects do not exist.
func awaitGone(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, o := range objects {
		Eventually(ctx, func() error {
			if err := get(ctx, o); err != nil {
				return client.IgnoreNotFound(err)
			}
			if in, ok := o.(*appsv1.KsctlInstall); ok {
				return fmt.Errorf("still there: %s", harness.ReadyCondition(in).Message)
			}
			return fmt.Errorf("still there")
		}, soon, 20*time.Millisecond).Should(Succeed(), "%s is gone", o.GetName())
	}
}

// mergePatch patches an object like a commit or a user does.
func mergePatch(ctx context.Context, o client.Object, body string) {
	GinkgoHelper()
	Expect(h.ControlPlane.Client().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(body)))).To(Succeed())
}

// eventMessages returns a function for Eventually with the messages of an install's events of a
// reason: events arrive some time after the status that they are about.
func eventMessages(ctx context.Context, in *appsv1.KsctlInstall, reason string) func() ([]string, error) {
	return func() (messages []string, err error) {
		var list corev1.EventList
		err = h.ControlPlane.Client().List(ctx, &list, inNamespace(in.Namespace))
		for i := range list.Items {
			if e := &list.Items[i]; e.InvolvedObject.UID == in.UID && e.Reason == reason {
				messages = append(messages, e.Message)
			}
		}
		return messages, err
	}
}

func inNamespace(ns string) client.ListOption { return client.InNamespace(ns) }

func fieldOwner(name string) client.UpdateOption { return client.FieldOwner(name) }
