// Package removal proves on a real API server that what was installed goes in
// the right order, completely, and takes nothing else along.
package removal_test

import (
	"context"
	"fmt"
	"io"
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
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/harness/witness"
	"github.com/ksctl/gitops/e2e/suite"
)

const soon = 4 * time.Minute

// long is for what hundreds of objects take.
const long = 8 * time.Minute

// quiet is how long nothing may happen for a spec to believe that nothing will.
const quiet = 2 * time.Second

var h *harness.Harness

func TestRemoval(t *testing.T) {
	suite.Run(t, "Removal")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	ctrl.SetLogger(zap.New(zap.UseDevMode(true), zap.WriteTo(io.MultiWriter(GinkgoWriter, heard.Writer(witness.Log)))))
	var err error
	h, err = harness.Start(ctx, cluster.Options{Audit: true})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return h.Stop() })
	watching, err := client.NewWithWatch(h.Plane.Config(), client.Options{Scheme: h.Plane.Client().Scheme()})
	Expect(err).NotTo(HaveOccurred())
	Expect(heard.Watch(ctx, watching)).To(Succeed())
	DeferCleanup(nothingWasTold)
	c, err := h.StartController("--watch-label-selector=!" + own)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(c.Stop)
})

// heard is told what the controllers of the suite tell.
var heard = &witness.Witness{}

// nothingWasTold fails when a secret of some spec stands in what was told, such as
// in the rehearsal of a removal.
func nothingWasTold(ctx SpecContext) {
	Expect(heard.Process()).To(Succeed())
	Expect(heard.Verdict(ctx)).To(Succeed())
}

// own labels the installs of specs that start a controller for themselves.
const own = "e2e.ksctl.com/own"

// seedVariable repeats what a run drew: its value is the seed that the run printed.
const seedVariable = "KSCTL_E2E_SEED"

// seed is that of what a spec draws, and is printed.
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
	ns, err := h.Namespace(ctx, "removal")
	Expect(err).NotTo(HaveOccurred())
	return ns
}

func configMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {value: %q}\n", name, value)
}

// publish offers a stack of one component under a source of a name.
func publish(ctx context.Context, ns, source, revision string, docs ...string) {
	GinkgoHelper()
	files := map[string]string{}
	for i, d := range docs {
		files[fmt.Sprintf("main/%03d.yaml", i)] = d
	}
	Expect(h.Publish(ctx, ns, source, revision, harness.Tree(harness.OneComponent, files))).To(Succeed())
}

// install makes an install of the stack of a source with its own name.
func install(ctx context.Context, ns, name string, change ...func(*appsv1.KsctlInstall)) *appsv1.KsctlInstall {
	GinkgoHelper()
	in := harness.Install(ns, name)
	in.Spec.SourceRef.Name = name
	for _, f := range change {
		f(in)
	}
	Expect(h.Plane.Client().Create(ctx, in)).To(Succeed())
	return in
}

// one publishes ConfigMaps and installs them.
func one(ctx context.Context, ns, name string, change ...func(*appsv1.KsctlInstall)) *appsv1.KsctlInstall {
	GinkgoHelper()
	publish(ctx, ns, name, "r1", configMap(name, "1"))
	return install(ctx, ns, name, change...)
}

func after(names ...string) func(*appsv1.KsctlInstall) {
	return func(in *appsv1.KsctlInstall) {
		for _, n := range names {
			in.Spec.DependsOn = append(in.Spec.DependsOn, appsv1.Dependency{Name: n})
		}
	}
}

func get(ctx context.Context, o client.Object) error {
	return h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(o), o)
}

func named(ns, name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }

func aConfigMap(ns, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: named(ns, name)}
}

// absent is true when an object does not exist.
func absent(ctx context.Context, o client.Object) bool {
	GinkgoHelper()
	err := get(ctx, o)
	Expect(client.IgnoreNotFound(err)).NotTo(HaveOccurred())
	return apierrors.IsNotFound(err)
}

// says waits until an install's Ready condition is as wanted and its message
// has all of the texts.
func says(ctx context.Context, in *appsv1.KsctlInstall, status metav1.ConditionStatus, reason string, texts ...string) {
	GinkgoHelper()
	Eventually(ctx, func() string {
		if err := get(ctx, in); err != nil {
			return err.Error()
		}
		c := harness.Ready(in)
		if c.Status != status || (reason != "" && c.Reason != reason) || in.Status.ObservedGeneration != in.Generation {
			return fmt.Sprintf("Ready is %s/%s: %s", c.Status, c.Reason, c.Message)
		}
		for _, t := range texts {
			if !strings.Contains(c.Message, t) {
				return fmt.Sprintf("Ready is %s/%s, and %q is not in its message: %s", c.Status, c.Reason, t, c.Message)
			}
		}
		return ""
	}, soon, 20*time.Millisecond).Should(BeEmpty(), "%s says %s/%s", in.Name, status, reason)
}

func becomesReady(ctx context.Context, installs ...*appsv1.KsctlInstall) {
	GinkgoHelper()
	for _, in := range installs {
		says(ctx, in, metav1.ConditionTrue, "")
	}
}

// suspend suspends an install, and returns when the controller of the suite knows.
func suspend(ctx context.Context, in *appsv1.KsctlInstall) {
	GinkgoHelper()
	change(ctx, in, `{"spec":{"suspend":true}}`)
	Eventually(ctx, func() error { return harness.Suspended(in) }, soon, 20*time.Millisecond).Should(Succeed())
}

func remove(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, o := range objects {
		Expect(client.IgnoreNotFound(h.Plane.Client().Delete(ctx, o))).To(Succeed())
	}
}

// gone waits until objects do not exist.
func gone(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, o := range objects {
		Eventually(ctx, func() error {
			if err := get(ctx, o); err != nil {
				return client.IgnoreNotFound(err)
			}
			if in, ok := o.(*appsv1.KsctlInstall); ok {
				return fmt.Errorf("still there: %s", harness.Ready(in).Message)
			}
			return fmt.Errorf("still there")
		}, soon, 20*time.Millisecond).Should(Succeed(), "%s goes", o.GetName())
	}
}

// change patches an object as a commit, or a person, would.
func change(ctx context.Context, o client.Object, body string) {
	GinkgoHelper()
	Expect(h.Plane.Client().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(body)))).To(Succeed())
}

// events are the messages of an install's events of a reason. They come some time
// after what they tell of.
func events(ctx context.Context, in *appsv1.KsctlInstall, reason string) func() ([]string, error) {
	return func() (messages []string, err error) {
		var list corev1.EventList
		err = h.Plane.Client().List(ctx, &list, inNamespace(in.Namespace))
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
