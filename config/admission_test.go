package config_test

import (
	"bytes"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// manifest is an object of ours with the given spec, and a part of the message
// with which it has to be refused.
type manifest struct {
	kind, name, spec, want string
}

const (
	source  = "sourceRef: {kind: KsctlSource, name: fleet}\n"
	install = source + "stack: web\n"
	remove  = "installRef: {name: web}\n"
	found   = source + "stack: web\n"
	git     = "git: {url: https://git.example.com/fleet.git}\n"

	agent = "store:\n  agent: {address: 'agent:8080', plaintext: true}\n"

	recipients = "recipients: [age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p]\n"
)

var refused = []manifest{
	// Schedules.
	{"KsctlInstall", "a zero interval", install + "interval: 0s", "interval must be between 1s and 720h"},
	{"KsctlInstall", "a negative interval", install + "interval: -1m", "spec.interval"},
	{"KsctlInstall", "an interval of milliseconds", install + "interval: 10ms", "interval must be between 1s and 720h"},
	{"KsctlInstall", "an interval of years", install + "interval: 100000h", "interval must be between 1s and 720h"},
	{"KsctlInstall", "an interval beyond what fits", install + "interval: 99999999999999999999h", "spec"},
	{"KsctlInstall", "an interval without a unit", install + "interval: \"10\"", "spec.interval"},
	{"KsctlInstall", "an interval that is a number", install + "interval: 10", "must be of type string"},
	{"KsctlInstall", "a zero retryInterval", install + "retryInterval: 0s", "retryInterval must be between 1s and 720h"},
	{"KsctlInstall", "a zero timeout", install + "timeout: 0m0s", "timeout must be between 1s and 720h"},
	{"KsctlInstall", "a word as timeout", install + "timeout: soon", "spec.timeout"},
	{"ImportState", "a zero interval", source + "interval: 0s", "interval must be between 1s and 720h"},
	{"ImportState", "nothing to import", "path: x", "set exactly one of sourceRef and rawExportedData"},
	{"ImportState", "two things to import", source + "rawExportedData: e30=", "set exactly one of sourceRef and rawExportedData"},
	{"ImportState", "the catalogue", "sourceRef: {kind: Catalog}", "the catalogue has stacks, and no states"},
	{"ImportState", "a path in itself", "rawExportedData: e30=\npath: x", "rawExportedData is one file"},
	{"ImportState", "another provider", source + "decryption: {provider: gpg, secretRef: {name: x}}", "spec.decryption.provider"},
	{"ImportState", "another policy", source + "conflict: Merge", "spec.conflict"},
	{"ImportState", "an agent and a namespace", source + agent + "  namespace: ksctl", "an agent knows its store"},
	{"ImportState", "an agent that is asked for clusters", source + agent + "publish: {kubeConfig: true}", "an agent can't be asked for what its store has"},
	{"ImportState", "an agent that takes back", source + agent + "deletionPolicy: Delete", "an agent takes nothing out of its store"},
	{"ImportState", "an agent that nobody is to know", source + "store: {agent: {address: 'agent:8080'}}", "set secretRef, for TLS, or plaintext: true"},
	{"ImportState", "an agent both ways", source + "store: {agent: {address: 'agent:8080', plaintext: true, secretRef: {name: x}}}", "set secretRef, for TLS, or plaintext: true"},
	{"ImportState", "an agent without a port", source + "store: {agent: {address: agent, plaintext: true}}", "spec.store.agent.address"},
	{"ExportState", "nobody to read it", "to: {secret: {name: x}}", "spec.recipients"},
	{"ExportState", "no recipient", "recipients: []\nto: {secret: {name: x}}", "spec.recipients"},
	{"ExportState", "a private key", "recipients: [AGE-SECRET-KEY-1QQPQ]\nto: {secret: {name: x}}", "spec.recipients[0]"},
	{"ExportState", "a recipient that is none", "recipients: [age1short]\nto: {secret: {name: x}}", "spec.recipients[0]"},
	{"ExportState", "nowhere to go", recipients + "to: {}", "set exactly one of secret and git"},
	{"ExportState", "two places to go", recipients + "to: {secret: {name: x}, git: {url: 'https://x', branch: main, author: {name: x, email: x@y}}}", "set exactly one of secret and git"},
	{"ExportState", "no branch", recipients + "to: {git: {url: 'https://x', author: {name: x, email: x@y}}}", "spec.to.git.branch"},
	{"ExportState", "a branch that is none", recipients + "to: {git: {url: 'https://x', branch: -f, author: {name: x, email: x@y}}}", "spec.to.git.branch"},
	{"ExportState", "no author", recipients + "to: {git: {url: 'https://x', branch: main}}", "spec.to.git.author"},
	{"ExportState", "an author of two lines", recipients + "to: {git: {url: 'https://x', branch: main, author: {name: \"x\\ny\", email: x@y}}}", "spec.to.git.author.name"},
	{"ExportState", "SSH without a key", recipients + "to: {git: {url: 'ssh://x/y', branch: main, author: {name: x, email: x@y}}}", "a URL of ssh needs a secretRef"},
	{"ExportState", "to delete commits", recipients + "deletionPolicy: Delete\nto: {git: {url: 'https://x', branch: main, author: {name: x, email: x@y}}}", "deletionPolicy Delete is for a Secret"},
	{"ExportState", "another policy", recipients + "credentials: Import\nto: {secret: {name: x}}", "spec.credentials"},
	{"ExportState", "a zero interval", recipients + "interval: 0s\nto: {secret: {name: x}}", "interval must be between 1s and 720h"},
	{"KsctlCluster", "no way to reach it", "interval: 1m", "set exactly one of importRef and kubeConfigRef"},
	{"KsctlCluster", "two ways to reach it", "importRef: {name: x}\nkubeConfigRef: {name: x}", "set exactly one of importRef and kubeConfigRef"},
	{"KsctlCluster", "a namespace that is none", "kubeConfigRef: {name: x}\nargocd: {namespace: A/B}", "spec.argocd.namespace"},
	{"KsctlCluster", "a zero interval", "kubeConfigRef: {name: x}\ninterval: 0s", "interval must be between 1s and 720h"},
	{"KsctlSource", "a zero interval", git + "interval: 0s", "interval must be between 1s and 720h"},

	// References.
	{"KsctlInstall", "no source", "stack: web", "spec.sourceRef: Required value"},
	{"KsctlInstall", "a source of another kind", "sourceRef: {kind: HelmRepository, name: x}\nstack: web", `supported values: "GitRepository", "OCIRepository", "Bucket", "ExternalArtifact", "KsctlSource"`},
	{"KsctlInstall", "a source without a name", "sourceRef: {kind: KsctlSource, name: \"\"}\nstack: web", "spec.sourceRef.name"},
	{"KsctlInstall", "values from another kind", install + "valuesFrom: [{kind: Pod, name: x, component: web}]", `supported values: "ConfigMap", "Secret"`},
	{"KsctlInstall", "values for no component", install + "valuesFrom: [{kind: Secret, name: x}]", "spec.valuesFrom[0].component: Required value"},
	{"KsctlInstall", "two clusters", install + "clusterRef: {name: a}\nkubeConfig: {secretRef: {name: b}}", "set at most one of clusterRef and kubeConfig"},
	{"KsctlInstall", "a kubeconfig that is nowhere", install + "kubeConfig: {}", "spec.kubeConfig.secretRef"},
	{"KsctlInstall", "one cluster and many", install + "clusterRef: {name: a}\nclusterSelector: {}", "with clusterSelector there is an install for each cluster"},
	{"KsctlInstall", "many clusters at no time", install + "clusterSelector: {maxConcurrent: 0}", "spec.clusterSelector.maxConcurrent"},
	{"KsctlInstall", "values of no cluster", install + "valuesFrom: [{kind: Cluster, component: web, set: [{path: a, expr: metadata.name}]}]", "set clusterRef or clusterSelector"},
	{"KsctlInstall", "values of a cluster by a name", install + "clusterSelector: {}\nvaluesFrom: [{kind: Cluster, name: x, component: web}]", "Cluster has neither name nor key, but set"},
	{"KsctlInstall", "values of nothing", install + "valuesFrom: [{kind: Secret, component: web}]", "need their name"},
	{"KsctlRemove", "two clusters", found + "clusterRef: {name: a}\nkubeConfig: {secretRef: {name: b}}", "set at most one of clusterRef and kubeConfig"},
	{"KsctlRemove", "a cluster of an install", remove + "clusterRef: {name: a}", "an installRef has those of the install"},

	// Names.
	{"KsctlInstall", "no stack", source, "spec.stack: Required value"},
	{"KsctlInstall", "an empty stack", source + "stack: \"\"", "spec.stack"},
	{"KsctlInstall", "a long stack", source + "stack: " + strings.Repeat("x", 64), "may not be more than 63"},
	{"KsctlInstall", "a stack that is a path", source + "stack: ../web", "spec.stack"},
	{"KsctlInstall", "a component in capitals", install + "components: [{name: Web}]", "spec.components[0].name"},
	{"KsctlInstall", "values for a component that can't be one", install + "valuesFrom: [{kind: Secret, name: x, component: a_b}]", "spec.valuesFrom[0].component"},
	{"KsctlInstall", "values from a name that can't be one", install + "valuesFrom: [{kind: Secret, name: a/b, component: web}]", "spec.valuesFrom[0].name"},
	{"KsctlInstall", "a target namespace that can't be one", install + "targetNamespace: Team_A", "spec.targetNamespace"},
	{"KsctlInstall", "an account that can't be one", install + "serviceAccountName: " + strings.Repeat("x", 254), "spec.serviceAccountName"},
	{"KsctlInstall", "a component named twice", install + "components: [{name: web}, {name: web}]", "spec.components[1]: Duplicate value"},

	// Choices.
	{"KsctlInstall", "an override that is no map", install + "components: [{name: web, override: text}]", "must be of type object"},
	{"KsctlInstall", "parameters that are a list", install + "parameters: [1]", "must be of type object"},
	{"KsctlInstall", "another drift mode", install + "drift: {mode: Sometimes}", `supported values: "Correct", "Warn", "Ignore"`},
	{"KsctlInstall", "another adopt mode", install + "adopt: Maybe", `supported values: "Never", "Unowned", "Always"`},
	{"KsctlInstall", "an ignore rule without paths", install + "drift: {ignore: [{paths: []}]}", "spec.drift.ignore[0].paths"},
	{"KsctlInstall", "a path that is no pointer", install + "drift: {ignore: [{paths: [spec.replicas]}]}", "spec.drift.ignore[0].paths[0]"},
	{"KsctlInstall", "prune as text", install + "prune: \"yes\"", "must be of type boolean"},

	// Fields that do not exist.
	{"KsctlInstall", "a misspelt field", install + "intervall: 1m", `unknown field "spec.intervall"`},
	{"KsctlInstall", "a misspelt field of a component", install + "components: [{name: web, overide: {}}]", `unknown field "spec.components[0].overide"`},
	{"KsctlSource", "a misspelt field", git + "reff: {branch: main}", `unknown field "spec.reff"`},

	// Removals.
	{"KsctlRemove", "an empty spec", "{}", "set exactly one of installRef and sourceRef"},
	{"KsctlRemove", "both forms", remove + found, "set exactly one of installRef and sourceRef"},
	{"KsctlRemove", "an install without a name", "installRef: {}", "spec.installRef.name: Required value"},
	{"KsctlRemove", "an install of another namespace", "installRef: {name: web, namespace: x}", `unknown field "spec.installRef.namespace"`},
	{"KsctlRemove", "a source and no stack", source, "sourceRef needs stack"},
	{"KsctlRemove", "an install and a stack", remove + "stack: web", "go with sourceRef"},
	{"KsctlRemove", "an install and keys", remove + "decryption: {provider: sops, secretRef: {name: x}}", "go with sourceRef"},
	{"KsctlInstall", "another provider of encryption", install + "decryption: {provider: gpg, secretRef: {name: x}}", "spec.decryption.provider"},
	{"KsctlInstall", "decryption without keys", install + "decryption: {provider: sops}", "spec.decryption.secretRef: Required value"},
	{"KsctlRemove", "an install and an account", remove + "serviceAccountName: x", "go with sourceRef"},
	{"KsctlRemove", "an install and a digest", remove + "approvedDigest: abc", "go with sourceRef"},
	{"KsctlRemove", "the catalogue and no version", "sourceRef: {kind: Catalog}\nstack: web", "needs its stackVersion"},
	{"KsctlRemove", "a component named twice", remove + "components: [web, web]", "spec.components[1]: Duplicate value"},
	{"KsctlRemove", "a component in capitals", remove + "components: [Web]", "spec.components[0]"},
	{"KsctlRemove", "components as for an install", remove + "components: [{name: web}]", `unknown field "spec.components[0].name"`},
	{"KsctlRemove", "something to keep without a kind", remove + "keep: [{name: x}]", "spec.keep[0].kind: Required value"},
	{"KsctlRemove", "another policy for custom resources", remove + "customResources: Ask", `supported values: "Refuse", "Delete"`},
	{"KsctlRemove", "a zero timeout", remove + "timeout: 0s", "timeout must be between 1s and 720h"},

	// Git.
	{"KsctlSource", "a webhook of nobody known", git + "webhook: {type: gogs, secretRef: {name: x}}", `supported values: "github", "gitlab", "gitea", "generic", "generic-hmac"`},
	{"KsctlSource", "a webhook without a token", git + "webhook: {type: github}", "spec.webhook.secretRef: Required value"},
	{"KsctlSource", "a webhook whose token is in a Secret without a name", git + "webhook: {type: github, secretRef: {name: ''}}", "name the Secret with the token"},
	{"KsctlSource", "a commit status of nobody known", git + "commitStatus: {type: gogs, secretRef: {name: x}}", `supported values: "github", "gitlab", "gitea"`},
	{"KsctlSource", "a commit status without a token", git + "commitStatus: {type: github}", "spec.commitStatus.secretRef: Required value"},
	{"KsctlSource", "a commit status whose token is in a Secret without a name", git + "commitStatus: {type: github, secretRef: {name: ''}}", "name the Secret with the token"},
	{"KsctlSource", "a commit status of a registry", "oci: {url: oci://x/y}\ncommitStatus: {type: github, secretRef: {name: x}}", "commitStatus needs git"},
	{"KsctlSource", "a commit status over SSH", git + "commitStatus: {type: github, address: 'ssh://x/y', secretRef: {name: x}}", "spec.commitStatus.address"},
	{"KsctlSource", "a cluster that is no part of a name", git + "commitStatus: {type: github, cluster: a/b, secretRef: {name: x}}", "spec.commitStatus.cluster"},
	{"KsctlSource", "a registry that GitHub tells of", "oci: {url: oci://x/y}\nwebhook: {type: github, secretRef: {name: x}}", "webhook.type of a registry is generic or generic-hmac"},
	{"KsctlSource", "no repository", "interval: 1m", "set exactly one of git and oci"},
	{"KsctlSource", "an empty spec", "{}", "set exactly one of git and oci"},
	{"KsctlSource", "two repositories", git + "oci: {url: oci://registry.example.com/fleet}", "set exactly one of git and oci"},
	{"KsctlSource", "a registry over https", "oci: {url: https://registry.example.com/fleet}", "spec.oci.url"},
	{"KsctlSource", "tag and digest", "oci: {url: oci://x/y, ref: {tag: v1, digest: sha256:" + strings.Repeat("a", 64) + "}}", "set at most one of tag, semver and digest"},
	{"KsctlSource", "a short digest", "oci: {url: oci://x/y, ref: {digest: sha256:abc}}", "spec.oci.ref.digest"},
	{"KsctlSource", "no provider", "oci: {url: oci://x/y, verify: {secretRef: {name: keys}}}", "provider"},
	{"KsctlSource", "cosign without anybody to trust", "oci: {url: oci://x/y, verify: {provider: cosign}}", "cosign needs either secretRef"},
	{"KsctlSource", "cosign with a root for everybody", "oci: {url: oci://x/y, verify: {provider: cosign, trustedRootSecretRef: {name: root}}}", "cosign needs either secretRef"},
	{"KsctlSource", "cosign with keys and a root", "oci: {url: oci://x/y, verify: {provider: cosign, secretRef: {name: keys}, trustedRootSecretRef: {name: root}}}", "cosign needs either secretRef"},
	{"KsctlSource", "notation without a policy", "oci: {url: oci://x/y, verify: {provider: notation}}", "notation needs secretRef"},
	{"KsctlSource", "notation with identities", "oci: {url: oci://x/y, verify: {provider: notation, secretRef: {name: policy}, matchOIDCIdentity: [{issuer: a, subject: b}]}}", "notation needs secretRef"},
	{"KsctlSource", "branch and commit", "git: {url: https://x, ref: {branch: main, commit: " + strings.Repeat("a", 40) + "}}", "set at most one of branch, tag, semver and commit"},
	{"KsctlSource", "tag and range", "git: {url: https://x, ref: {tag: v1, semver: 1.x}}", "set at most one of branch, tag, semver and commit"},
	{"KsctlSource", "a short commit", "git: {url: https://x, ref: {commit: abc1234}}", "spec.git.ref.commit"},
	{"KsctlSource", "a file as URL", "git: {url: file:///etc}", "spec.git.url"},
	{"KsctlSource", "a URL of SSH without a Secret", "git: {url: ssh://git@git.example.com/fleet.git}", "a URL of ssh needs a secretRef"},
	{"KsctlSource", "a tag to verify, and none to take", "git: {url: https://x, verify: {mode: TagAndHEAD, secretRef: {name: keys}}}", "need ref.tag or ref.semver"},
	{"KsctlSource", "a tag to verify, and a branch to take", "git: {url: https://x, ref: {branch: main}, verify: {mode: Tag, secretRef: {name: keys}}}", "need ref.tag or ref.semver"},
	{"KsctlSource", "another mode to verify", "git: {url: https://x, verify: {mode: Maybe, secretRef: {name: keys}}}", `supported values: "HEAD", "Tag", "TagAndHEAD"`},
	{"KsctlSource", "nobody to trust", "git: {url: https://x, verify: {mode: HEAD}}", "spec.git.verify.secretRef: Required value"},
	{"KsctlSource", "much to ignore", git + "ignore: " + strings.Repeat("x", 32769), "spec.ignore"},
	{"KsctlSource", "a Secret without a name", "git: {url: https://x, secretRef: {}}", "spec.git.secretRef.name"},
	{"KsctlSource", "an empty URL", "git: {url: \"\"}", "spec.git.url"},
}

var accepted = []manifest{
	{kind: "KsctlInstall", name: "the least", spec: install},
	{kind: "KsctlInstall", name: "durations of several units", spec: install + "interval: 1h30m\nretryInterval: 1.5m\ntimeout: 720h"},
	{kind: "KsctlInstall", name: "any override and parameters", spec: install + "parameters: {a: {b: [1]}}\ncomponents: [{name: web, enabled: false, override: {values: {x: null, y: 1}, own: true}}]"},
	{kind: "KsctlInstall", name: "another cluster", spec: install + "clusterRef: {name: prod.eu, namespace: clusters}"},
	{kind: "KsctlInstall", name: "many clusters", spec: install + "clusterSelector: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: Exists}], maxConcurrent: 3, onFailure: Continue}\nvaluesFrom: [{kind: Cluster, component: web, set: [{path: a.b, expr: metadata.name}]}]"},
	{kind: "KsctlInstall", name: "a kubeconfig", spec: install + "kubeConfig: {secretRef: {name: prod, key: config}}"},
	{kind: "KsctlRemove", name: "the least", spec: remove},
	{kind: "KsctlRemove", name: "another cluster", spec: found + "clusterRef: {name: prod}"},
	{kind: "KsctlRemove", name: "components, and nothing to keep", spec: remove + "components: [dashboards, web]\nkeep: []\ncustomResources: Delete\ntimeout: 10m"},
	{kind: "KsctlRemove", name: "something to keep", spec: remove + "keep: [{kind: PersistentVolumeClaim}, {group: \"\", kind: Secret, namespace: x, name: z}]"},
	{kind: "KsctlRemove", name: "a stack of a source", spec: found + "path: ./stacks\napprovedDigest: abc\nparameters: {a: [1]}\nchoices: [{name: web, version: 1.2.3, override: {values: {x: null}}}]\ncomponents: [web]\ndecryption: {provider: sops, secretRef: {name: age}}"},
	{kind: "KsctlCluster", name: "a kubeconfig", spec: "kubeConfigRef: {name: x}"},
	{kind: "KsctlCluster", name: "everything", spec: "importRef: {name: x, key: aws.ha.demo.us-east-1}\nargocd: {namespace: argocd, name: demo, project: web}\nserviceAccountName: deployer"},
	{kind: "ImportState", name: "the least", spec: source},
	{kind: "ImportState", name: "an export in itself", spec: "rawExportedData: e30="},
	{kind: "ImportState", name: "what ksctl's first one has", spec: "handled: false\nrawExportedData: e30=\nreasonOfFailure: no answer\nsuccess: false"},
	{kind: "ImportState", name: "everything", spec: source + "path: ./states\ndecryption: {provider: sops, secretRef: {name: age}}\nselect: {cloud: aws, clusterType: ha, clusterName: demo, region: us-east-1}\ncredentials: Skip\nstore: {namespace: ksctl}\nconflict: Overwrite\ndryRun: true\ndeletionPolicy: Delete\nserviceAccountName: importer"},
	{kind: "ImportState", name: "an agent", spec: source + "store: {agent: {address: '[::1]:8080', secretRef: {name: x}, serverName: agent.example}}\nconflict: Overwrite\npublish: {kubeConfig: false}\ndeletionPolicy: Keep"},
	{kind: "ExportState", name: "the least", spec: recipients + "to: {secret: {name: x}}"},
	{kind: "ExportState", name: "a key for after quantum computers", spec: "recipients: [age1pq1" + strings.Repeat("q", 1950) + "]\nto: {secret: {name: x}}"},
	{kind: "ExportState", name: "everything", spec: recipients + "from: {namespace: ksctl}\nselect: {cloud: aws, clusterType: ha, clusterName: demo, region: us-east-1}\ncredentials: Export\nprune: true\ndeletionPolicy: Keep\nserviceAccountName: exporter\n" +
		"to: {git: {url: 'ssh://git@git.example.com/fleet.git', branch: states/prod, path: ./states, secretRef: {name: login}, proxySecretRef: {name: proxy}, author: {name: Ünal of ksctl, email: x@example.com}, message: Back up}}"},
	{kind: "KsctlSource", name: "the least", spec: git},
	{kind: "KsctlSource", name: "a webhook", spec: git + "webhook: {type: gitea, secretRef: {name: x}}"},
	{kind: "KsctlSource", name: "a commit status", spec: git + "commitStatus: {type: gitlab, address: 'https://x/y/z', cluster: prod-eu, secretRef: {name: x}}"},
	{kind: "KsctlSource", name: "a webhook of a registry", spec: "oci: {url: oci://x/y}\nwebhook: {type: generic-hmac, secretRef: {name: x}}"},
	{kind: "KsctlSource", name: "a range", spec: "git: {url: https://git.example.com/x, ref: {semver: \">=1.2.0 <2\"}}"},
	{kind: "KsctlSource", name: "SSH", spec: "git: {url: ssh://git@git.example.com/fleet.git, secretRef: {name: key}, proxySecretRef: {name: proxy}}"},
	{kind: "KsctlSource", name: "a tag to verify", spec: "git: {url: https://x, ref: {tag: v1}, verify: {mode: Tag, secretRef: {name: keys}}}\nignore: \"/*\\n!/stacks\""},
	{kind: "KsctlSource", name: "a branch to verify", spec: "git: {url: https://x, verify: {secretRef: {name: keys}}}"},
	{kind: "KsctlSource", name: "a commit", spec: "git: {url: http://git.example.com/x, ref: {commit: " + strings.Repeat("a", 64) + "}}"},
}

func (m manifest) object(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	spec := map[string]any{}
	if err := yaml.Unmarshal([]byte(m.spec), &spec); err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetAPIVersion("apps.ksctl.com/v1")
	switch m.kind {
	case "ImportState", "ExportState":
		u.SetAPIVersion("storage.ksctl.com/v1alpha1")
	case "KsctlCluster", "KsctlAutoScaler":
		u.SetAPIVersion("cluster.ksctl.com/v1")
	}
	u.SetKind(m.kind)
	u.SetNamespace("default")
	u.SetGenerateName("x-")
	return u
}

func (m manifest) testRefused(t *testing.T, c client.Client) {
	err := c.Create(t.Context(), m.object(t), client.DryRunAll)
	if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
		t.Fatalf("got %v", err)
	}
	if !strings.Contains(err.Error(), m.want) {
		t.Errorf("message %q does not contain %q", err, m.want)
	}
}

// testAccepted also sees that the spec comes back as it was written.
func (m manifest) testAccepted(t *testing.T, c client.Client) {
	u := m.object(t)
	want, err := yaml.Marshal(u.Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), u, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	if got, _ := yaml.Marshal(u.Object["spec"]); !bytes.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
