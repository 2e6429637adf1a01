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

// manifest is an object of one of our kinds. name describes the case, and want is a part of the
// error with which the API server must reject the object.
type manifest struct {
	kind, name, spec, wantError string
}

const (
	sourceRefYAML   = "sourceRef: {kind: KsctlSource, name: fleet}\n"
	installSpec     = sourceRefYAML + "stack: web\n"
	installRefYAML  = "installRef: {name: web}\n"
	removeStackSpec = sourceRefYAML + "stack: web\n"
	gitYAML         = "git: {url: https://git.example.com/fleet.git}\n"

	storeAgentYAML = "store:\n  agent: {address: 'agent:8080', plaintext: true}\n"

	recipientsYAML = "recipients: [age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p]\n"
)

var rejectedManifests = []manifest{
	// Schedules.
	{"KsctlInstall", "a zero interval", installSpec + "interval: 0s", "interval must be between 1s and 720h"},
	{"KsctlInstall", "a negative interval", installSpec + "interval: -1m", "spec.interval"},
	{"KsctlInstall", "an interval of milliseconds", installSpec + "interval: 10ms",
		"interval must be between 1s and 720h"},
	{"KsctlInstall", "an interval of years", installSpec + "interval: 100000h", "interval must be between 1s and 720h"},
	{"KsctlInstall", "an interval that overflows", installSpec + "interval: 99999999999999999999h",
		"interval must be between 1s and 720h"},
	{"KsctlInstall", "a timeout that overflows in minutes", installSpec + "timeout: 999999999999m",
		"timeout must be between 1s and 720h"},
	{"KsctlInstall", "a retryInterval that overflows in seconds", installSpec + "retryInterval: 99999999999s",
		"retryInterval must be between 1s and 720h"},
	{"KsctlInstall", "an interval without a unit", installSpec + "interval: \"10\"", "spec.interval"},
	{"KsctlInstall", "an interval that is a number", installSpec + "interval: 10", "must be of type string"},
	{"KsctlInstall", "a zero retryInterval", installSpec + "retryInterval: 0s",
		"retryInterval must be between 1s and 720h"},
	{"KsctlInstall", "a zero timeout", installSpec + "timeout: 0m0s", "timeout must be between 1s and 720h"},
	{"KsctlInstall", "a timeout that is not a duration", installSpec + "timeout: soon", "spec.timeout"},
	{"ImportState", "a zero interval", sourceRefYAML + "interval: 0s", "interval must be between 1s and 720h"},
	{"ImportState", "neither sourceRef nor rawExportedData", "path: x",
		"set exactly one of sourceRef and rawExportedData"},
	{"ImportState", "both sourceRef and rawExportedData", sourceRefYAML + "rawExportedData: e30=",
		"set exactly one of sourceRef and rawExportedData"},
	{"ImportState", "a catalog source", "sourceRef: {kind: Catalog}",
		"sourceRef.kind Catalog has no states: use another source"},
	{"ImportState", "rawExportedData and a path", "rawExportedData: e30=\npath: x",
		"path is not allowed with rawExportedData"},
	{"ImportState", "an unknown decryption provider",
		sourceRefYAML + "decryption: {provider: gpg, secretRef: {name: x}}", "spec.decryption.provider"},
	{"ImportState", "an unknown conflict policy", sourceRefYAML + "conflict: Merge", "spec.conflict"},
	{"ImportState", "an agent and a store namespace", sourceRefYAML + storeAgentYAML + "  namespace: ksctl",
		"namespace is not allowed with agent"},
	{"ImportState", "an agent and publish.kubeConfig", sourceRefYAML + storeAgentYAML + "publish: {kubeConfig: true}",
		"publish.kubeConfig is not allowed with store.agent, " +
			"which cannot report its states: create a KsctlCluster with kubeConfigRef"},
	{"ImportState", "an agent and deletionPolicy Delete", sourceRefYAML + storeAgentYAML + "deletionPolicy: Delete",
		"deletionPolicy must be Keep with store.agent, which cannot delete states"},
	{"ImportState", "an agent with neither TLS nor plaintext", sourceRefYAML +
		"store: {agent: {address: 'agent:8080'}}",
		"set either secretRef (TLS) or plaintext: true (required by ksctl's own agent)"},
	{"ImportState", "an agent with both TLS and plaintext", sourceRefYAML + "store: {agent: {address: 'agent:8080', " +
		"plaintext: true, secretRef: {name: x}}}",
		"set either secretRef (TLS) or plaintext: true (required by ksctl's own agent)"},
	{"ImportState", "an agent without a port", sourceRefYAML + "store: {agent: {address: agent, plaintext: true}}",
		"spec.store.agent.address"},
	{"ExportState", "no recipients", "to: {secret: {name: x}}", "spec.recipients"},
	{"ExportState", "empty recipients", "recipients: []\nto: {secret: {name: x}}", "spec.recipients"},
	{"ExportState", "a private key as recipient", "recipients: [AGE-SECRET-KEY-1QQPQ]\nto: {secret: {name: x}}",
		"spec.recipients[0]"},
	{"ExportState", "an invalid recipient", "recipients: [age1short]\nto: {secret: {name: x}}", "spec.recipients[0]"},
	{"ExportState", "no destination", recipientsYAML + "to: {}", "set exactly one of secret and git"},
	{"ExportState", "two destinations", recipientsYAML +
		"to: {secret: {name: x}, git: {url: 'https://x', branch: main, author: {name: x, email: x@y}}}",
		"set exactly one of secret and git"},
	{"ExportState", "no branch", recipientsYAML + "to: {git: {url: 'https://x', author: {name: x, email: x@y}}}",
		"spec.to.git.branch"},
	{"ExportState", "an invalid branch", recipientsYAML +
		"to: {git: {url: 'https://x', branch: -f, author: {name: x, email: x@y}}}", "spec.to.git.branch"},
	{"ExportState", "no author", recipientsYAML + "to: {git: {url: 'https://x', branch: main}}", "spec.to.git.author"},
	{"ExportState", "an author name with two lines", recipientsYAML +
		"to: {git: {url: 'https://x', branch: main, author: {name: \"x\\ny\", email: x@y}}}",
		"spec.to.git.author.name"},
	{"ExportState", "SSH without a key", recipientsYAML + "to: {git: {url: 'ssh://x/y', branch: main, " +
		"author: {name: x, email: x@y}}}", "ssh:// URLs require a secretRef with identity and known_hosts"},
	{"ExportState", "deletionPolicy Delete for Git", recipientsYAML + "deletionPolicy: Delete\n" +
		"to: {git: {url: 'https://x', branch: main, author: {name: x, email: x@y}}}",
		"deletionPolicy Delete is only allowed with to.secret: commits are never removed"},
	{"ExportState", "an unknown credentials policy", recipientsYAML + "credentials: Import\nto: {secret: {name: x}}",
		"spec.credentials"},
	{"ExportState", "a zero interval", recipientsYAML + "interval: 0s\nto: {secret: {name: x}}",
		"interval must be between 1s and 720h"},
	{"KsctlCluster", "no kubeconfig reference", "interval: 1m", "set exactly one of importRef and kubeConfigRef"},
	{"KsctlCluster", "two kubeconfig references", "importRef: {name: x}\nkubeConfigRef: {name: x}",
		"set exactly one of importRef and kubeConfigRef"},
	{"KsctlCluster", "an invalid Argo CD namespace", "kubeConfigRef: {name: x}\nargocd: {namespace: A/B}",
		"spec.argocd.namespace"},
	{"KsctlCluster", "a zero interval", "kubeConfigRef: {name: x}\ninterval: 0s",
		"interval must be between 1s and 720h"},
	{"KsctlSource", "a zero interval", gitYAML + "interval: 0s", "interval must be between 1s and 720h"},

	// References.
	{"KsctlInstall", "no source", "stack: web", "spec.sourceRef: Required value"},
	{"KsctlInstall", "a source of another kind", "sourceRef: {kind: HelmRepository, name: x}\nstack: web",
		`supported values: "GitRepository", "OCIRepository", "Bucket", "ExternalArtifact", "KsctlSource"`},
	{"KsctlInstall", "a source without a name", "sourceRef: {kind: KsctlSource, name: \"\"}\nstack: web",
		"spec.sourceRef.name"},
	{"KsctlInstall", "values from another kind", installSpec + "valuesFrom: [{kind: Pod, name: x, component: web}]",
		`supported values: "ConfigMap", "Secret"`},
	{"KsctlInstall", "values for no component", installSpec + "valuesFrom: [{kind: Secret, name: x}]",
		"spec.valuesFrom[0].component: Required value"},
	{"KsctlInstall", "Cluster values with a targetPath", installSpec + "clusterSelector: {}\n" +
		"valuesFrom: [{kind: Cluster, set: [{path: a, expr: metadata.name}], targetPath: x, component: web}]",
		"targetPath is not allowed for kind Cluster"},
	{"KsctlInstall", "parameters from another kind", installSpec + "parametersFrom: [{kind: Cluster, name: x}]",
		`supported values: "ConfigMap", "Secret"`},
	{"KsctlInstall", "parameters from no object", installSpec + "parametersFrom: [{kind: Secret}]",
		"spec.parametersFrom[0].name: Required value"},
	{"KsctlInstall", "a targetPath without a key", installSpec +
		"parametersFrom: [{kind: Secret, name: x, targetPath: a.b}]", "targetPath requires key"},
	{"KsctlInstall", "two clusters", installSpec + "clusterRef: {name: a}\nkubeConfig: {secretRef: {name: b}}",
		"set at most one of clusterRef and kubeConfig"},
	{"KsctlInstall", "an empty kubeConfig", installSpec + "kubeConfig: {}", "spec.kubeConfig.secretRef"},
	{"KsctlInstall", "clusterRef and clusterSelector", installSpec + "clusterRef: {name: a}\nclusterSelector: {}",
		"clusterRef, kubeConfig, publish and takeOver are not allowed with clusterSelector"},
	{"KsctlInstall", "a takeOver of itself", installSpec + "takeOver: {name: self}",
		"spec.takeOver must name another KsctlInstall"},
	{"KsctlInstall", "maxConcurrent 0", installSpec + "clusterSelector: {maxConcurrent: 0}",
		"spec.clusterSelector.maxConcurrent"},
	{"KsctlInstall", "Cluster values without a cluster", installSpec + "valuesFrom: [{kind: Cluster, component: web, " +
		"set: [{path: a, expr: metadata.name}]}]", "valuesFrom kind Cluster requires clusterRef or clusterSelector"},
	{"KsctlInstall", "Cluster values with a name", installSpec + "clusterSelector: {}\n" +
		"valuesFrom: [{kind: Cluster, name: x, component: web}]",
		"kinds ConfigMap and Secret require name and do not allow set; " +
			"kind Cluster requires set and does not allow name and key"},
	{"KsctlInstall", "Secret values without a name", installSpec + "valuesFrom: [{kind: Secret, component: web}]",
		"kinds ConfigMap and Secret require name and do not allow set; " +
			"kind Cluster requires set and does not allow name and key"},
	{"KsctlRemove", "two clusters", removeStackSpec + "clusterRef: {name: a}\nkubeConfig: {secretRef: {name: b}}",
		"set at most one of clusterRef and kubeConfig"},
	{"KsctlRemove", "installRef and clusterRef", installRefYAML + "clusterRef: {name: a}",
		"path, stack, stackVersion, parameters, choices, charts, decryption, targetNamespace, serviceAccountName, " +
			"approvedDigest, clusterRef and kubeConfig are only allowed with sourceRef"},

	// Names.
	{"KsctlInstall", "no stack", sourceRefYAML, "spec.stack: Required value"},
	{"KsctlInstall", "an empty stack", sourceRefYAML + "stack: \"\"", "spec.stack"},
	{"KsctlInstall", "a long stack", sourceRefYAML + "stack: " + strings.Repeat("x", 64), "may not be more than 63"},
	{"KsctlInstall", "a stack that is a path", sourceRefYAML + "stack: ../web", "spec.stack"},
	{"KsctlInstall", "a component in capitals", installSpec + "components: [{name: Web}]", "spec.components[0].name"},
	{"KsctlInstall", "values for an invalid component name",
		installSpec + "valuesFrom: [{kind: Secret, name: x, component: a_b}]", "spec.valuesFrom[0].component"},
	{"KsctlInstall", "values from an invalid Secret name",
		installSpec + "valuesFrom: [{kind: Secret, name: a/b, component: web}]", "spec.valuesFrom[0].name"},
	{"KsctlInstall", "an invalid target namespace", installSpec + "targetNamespace: Team_A", "spec.targetNamespace"},
	{"KsctlInstall", "an invalid service account name", installSpec + "serviceAccountName: " + strings.Repeat("x", 254),
		"spec.serviceAccountName"},
	{"KsctlInstall", "a duplicate component", installSpec + "components: [{name: web}, {name: web}]",
		"spec.components[1]: Duplicate value"},

	// Choices.
	{"KsctlInstall", "an unknown CRD policy", installSpec + "components: [{name: web, crds: Replace}]",
		`supported values: "Apply", "CreateOnly", "Skip"`},
	{"KsctlInstall", "an unknown hook policy", installSpec + "components: [{name: web, hooks: Sometimes}]",
		`supported values: "Run", "Skip"`},
	{"KsctlInstall", "a release name in capitals", installSpec + "components: [{name: web, releaseName: Web}]",
		"spec.components[0].releaseName"},
	{"KsctlInstall", "a release name of 54 characters", installSpec + "components: [{name: web, releaseName: " +
		strings.Repeat("x", 54) + "}]", "may not be more than 53"},
	{"KsctlInstall", "skipSchemaValidation as a string",
		installSpec + "components: [{name: web, skipSchemaValidation: \"yes\"}]", "must be of type boolean"},
	{"KsctlInstall", "an override that is not an object", installSpec + "components: [{name: web, override: text}]",
		"must be of type object"},
	{"KsctlInstall", "parameters that are a list", installSpec + "parameters: [1]", "must be of type object"},
	{"KsctlInstall", "an unknown drift mode", installSpec + "drift: {mode: Sometimes}",
		`supported values: "Correct", "Warn", "Ignore"`},
	{"KsctlInstall", "an unknown adopt mode", installSpec + "adopt: Maybe",
		`supported values: "Never", "Unowned", "Unchanged", "Always"`},
	{"KsctlInstall", "an ignore rule without paths", installSpec + "drift: {ignore: [{paths: []}]}",
		"spec.drift.ignore[0].paths"},
	{"KsctlInstall", "an ignored path that is not a JSON pointer",
		installSpec + "drift: {ignore: [{paths: [spec.replicas]}]}", "spec.drift.ignore[0].paths[0]"},
	{"KsctlInstall", "prune as a string", installSpec + "prune: \"yes\"", "must be of type boolean"},

	// Fields that do not exist.
	{"KsctlInstall", "a misspelled field", installSpec + "intervall: 1m", `unknown field "spec.intervall"`},
	{"KsctlInstall", "a misspelled field of a component", installSpec + "components: [{name: web, overide: {}}]",
		`unknown field "spec.components[0].overide"`},
	{"KsctlSource", "a misspelled field", gitYAML + "reff: {branch: main}", `unknown field "spec.reff"`},

	// Removals.
	{"KsctlRemove", "an empty spec", "{}", "set exactly one of installRef and sourceRef"},
	{"KsctlRemove", "both installRef and sourceRef", installRefYAML + removeStackSpec,
		"set exactly one of installRef and sourceRef"},
	{"KsctlRemove", "an install without a name", "installRef: {}", "spec.installRef.name: Required value"},
	{"KsctlRemove", "an install in another namespace", "installRef: {name: web, namespace: x}",
		`unknown field "spec.installRef.namespace"`},
	{"KsctlRemove", "sourceRef without stack", sourceRefYAML, "sourceRef requires stack"},
	{"KsctlRemove", "installRef and stack", installRefYAML + "stack: web", "are only allowed with sourceRef"},
	{"KsctlRemove", "installRef and decryption", installRefYAML + "decryption: {provider: sops, secretRef: {name: x}}",
		"are only allowed with sourceRef"},
	{"KsctlInstall", "an unknown decryption provider",
		installSpec + "decryption: {provider: gpg, secretRef: {name: x}}", "spec.decryption.provider"},
	{"KsctlInstall", "decryption without a Secret", installSpec + "decryption: {provider: sops}",
		"spec.decryption.secretRef: Required value"},
	{"KsctlRemove", "installRef and serviceAccountName", installRefYAML + "serviceAccountName: x",
		"are only allowed with sourceRef"},
	{"KsctlRemove", "installRef and approvedDigest", installRefYAML + "approvedDigest: abc",
		"are only allowed with sourceRef"},
	{"KsctlRemove", "a catalog stack without a version", "sourceRef: {kind: Catalog}\nstack: web",
		"stackVersion is required for sourceRef.kind Catalog"},
	{"KsctlRemove", "a duplicate component", installRefYAML + "components: [web, web]",
		"spec.components[1]: Duplicate value"},
	{"KsctlRemove", "a component in capitals", installRefYAML + "components: [Web]", "spec.components[0]"},
	{"KsctlRemove", "components as objects", installRefYAML + "components: [{name: web}]",
		`unknown field "spec.components[0].name"`},
	{"KsctlRemove", "a keep rule without a kind", installRefYAML + "keep: [{name: x}]",
		"spec.keep[0].kind: Required value"},
	{"KsctlRemove", "an unknown customResources policy", installRefYAML + "customResources: Ask",
		`supported values: "Refuse", "Delete"`},
	{"KsctlRemove", "a zero timeout", installRefYAML + "timeout: 0s", "timeout must be between 1s and 720h"},

	// Git.
	{"KsctlSource", "an unknown webhook type", gitYAML + "webhook: {type: gogs, secretRef: {name: x}}",
		`supported values: "github", "gitlab", "gitea", "generic", "generic-hmac"`},
	{"KsctlSource", "a webhook without a Secret", gitYAML + "webhook: {type: github}",
		"spec.webhook.secretRef: Required value"},
	{"KsctlSource", "a webhook with an empty Secret name", gitYAML + "webhook: {type: github, secretRef: {name: ''}}",
		"secretRef.name is required"},
	{"KsctlSource", "an unknown commit status type", gitYAML + "commitStatus: {type: gogs, secretRef: {name: x}}",
		`supported values: "github", "gitlab", "gitea"`},
	{"KsctlSource", "a commit status without a Secret", gitYAML + "commitStatus: {type: github}",
		"spec.commitStatus.secretRef: Required value"},
	{"KsctlSource", "a commit status with an empty Secret name",
		gitYAML + "commitStatus: {type: github, secretRef: {name: ''}}", "secretRef.name is required"},
	{"KsctlSource", "a commit status for a registry",
		"oci: {url: oci://x/y}\ncommitStatus: {type: github, secretRef: {name: x}}", "commitStatus requires git"},
	{"KsctlSource", "a commit status with an SSH address",
		gitYAML + "commitStatus: {type: github, address: 'ssh://x/y', secretRef: {name: x}}",
		"spec.commitStatus.address"},
	{"KsctlSource", "a commit status with an invalid cluster name",
		gitYAML + "commitStatus: {type: github, cluster: a/b, secretRef: {name: x}}", "spec.commitStatus.cluster"},
	{"KsctlSource", "a GitHub webhook for a registry",
		"oci: {url: oci://x/y}\nwebhook: {type: github, secretRef: {name: x}}",
		"webhook.type must be generic or generic-hmac for oci"},
	{"KsctlSource", "no repository", "interval: 1m", "set exactly one of git and oci"},
	{"KsctlSource", "an empty spec", "{}", "set exactly one of git and oci"},
	{"KsctlSource", "two repositories", gitYAML + "oci: {url: oci://registry.example.com/fleet}",
		"set exactly one of git and oci"},
	{"KsctlSource", "a registry over https", "oci: {url: https://registry.example.com/fleet}", "spec.oci.url"},
	{"KsctlSource", "tag and digest", "oci: {url: oci://x/y, ref: {tag: v1, digest: sha256:" + strings.Repeat("a", 64) +
		"}}", "set at most one of tag, semver and digest"},
	{"KsctlSource", "a short digest", "oci: {url: oci://x/y, ref: {digest: sha256:abc}}", "spec.oci.ref.digest"},
	{"KsctlSource", "no provider", "oci: {url: oci://x/y, verify: {secretRef: {name: keys}}}", "provider"},
	{"KsctlSource", "cosign without keys or identities", "oci: {url: oci://x/y, verify: {provider: cosign}}",
		"cosign requires either secretRef"},
	{"KsctlSource", "cosign with only a trusted root",
		"oci: {url: oci://x/y, verify: {provider: cosign, trustedRootSecretRef: {name: root}}}",
		"cosign requires either secretRef"},
	{"KsctlSource", "cosign with keys and a root",
		"oci: {url: oci://x/y, verify: {provider: cosign, " +
			"secretRef: {name: keys}, trustedRootSecretRef: {name: root}}}", "cosign requires either secretRef"},
	{"KsctlSource", "notation without a policy", "oci: {url: oci://x/y, verify: {provider: notation}}",
		"notation requires secretRef, and does not allow trustedRootSecretRef and matchOIDCIdentity"},
	{"KsctlSource", "notation with identities", "oci: {url: oci://x/y, verify: {provider: notation, " +
		"secretRef: {name: policy}, matchOIDCIdentity: [{issuer: a, subject: b}]}}",
		"notation requires secretRef, and does not allow trustedRootSecretRef and matchOIDCIdentity"},
	{"KsctlSource", "branch and commit", "git: {url: https://x, ref: {branch: main, commit: " +
		strings.Repeat("a", 40) + "}}", "set at most one of branch, tag, semver and commit"},
	{"KsctlSource", "tag and range", "git: {url: https://x, ref: {tag: v1, semver: 1.x}}",
		"set at most one of branch, tag, semver and commit"},
	{"KsctlSource", "a SHA-256 commit", "git: {url: https://x, ref: {commit: " + strings.Repeat("a", 64) + "}}",
		"spec.git.ref.commit"},
	{"KsctlSource", "a short commit", "git: {url: https://x, ref: {commit: abc1234}}", "spec.git.ref.commit"},
	{"KsctlSource", "a file URL", "git: {url: file:///etc}", "spec.git.url"},
	{"KsctlSource", "an SSH URL without a Secret", "git: {url: ssh://git@git.example.com/fleet.git}",
		"ssh:// URLs require a secretRef with identity and known_hosts"},
	{"KsctlSource", "mode TagAndHEAD without a tag",
		"git: {url: https://x, verify: {mode: TagAndHEAD, secretRef: {name: keys}}}",
		"verify.mode Tag and TagAndHEAD require ref.tag or ref.semver"},
	{"KsctlSource", "mode Tag with a branch", "git: {url: https://x, ref: {branch: main}, verify: {mode: Tag, " +
		"secretRef: {name: keys}}}", "verify.mode Tag and TagAndHEAD require ref.tag or ref.semver"},
	{"KsctlSource", "an unknown verification mode",
		"git: {url: https://x, verify: {mode: Maybe, secretRef: {name: keys}}}",
		`supported values: "HEAD", "Tag", "TagAndHEAD"`},
	{"KsctlSource", "verification without keys", "git: {url: https://x, verify: {mode: HEAD}}",
		"spec.git.verify.secretRef: Required value"},
	{"KsctlSource", "ignore rules that are too long", gitYAML + "ignore: " + strings.Repeat("x", 32769), "spec.ignore"},
	{"KsctlSource", "a Secret without a name", "git: {url: https://x, secretRef: {}}", "spec.git.secretRef.name"},
	{"KsctlSource", "an empty URL", "git: {url: \"\"}", "spec.git.url"},
}

var acceptedManifests = []manifest{
	{kind: "KsctlInstall", name: "only required fields", spec: installSpec},
	{kind: "KsctlInstall", name: "durations of several units",
		spec: installSpec + "interval: 1h30m\nretryInterval: 1.5m\ntimeout: 720h"},
	{kind: "KsctlInstall", name: "the longest durations in small units",
		spec: installSpec + "interval: 2592000000ms\nretryInterval: 2592000s\ntimeout: 43200m"},
	{kind: "KsctlInstall", name: "a short duration in small units",
		spec: installSpec + "interval: 25920000ms\ntimeout: 100000.5s"},
	{kind: "KsctlInstall", name: "any override and parameters", spec: installSpec +
		"parameters: {a: {b: [1]}}\n" +
		"components: [{name: web, enabled: false, override: {values: {x: null, y: 1}, own: true}}]"},
	{kind: "KsctlInstall", name: "settings of a chart", spec: installSpec +
		"components: [{name: web, releaseName: web.2, crds: CreateOnly, hooks: Skip, skipSchemaValidation: false}]"},
	{kind: "KsctlInstall", name: "a cluster reference",
		spec: installSpec + "clusterRef: {name: prod.eu, namespace: clusters}"},
	{kind: "KsctlInstall", name: "a cluster selector", spec: installSpec + "clusterSelector: {matchLabels: {a: b}, " +
		"matchExpressions: [{key: c, operator: Exists}], maxConcurrent: 3, onFailure: Continue}\nvaluesFrom: [{kind: " +
		"Cluster, component: web, set: [{path: a.b, expr: metadata.name}]}]"},
	{kind: "KsctlInstall", name: "a kubeconfig",
		spec: installSpec + "kubeConfig: {secretRef: {name: prod, key: config}}"},
	{kind: "KsctlRemove", name: "only required fields", spec: installRefYAML},
	{kind: "KsctlRemove", name: "a cluster reference", spec: removeStackSpec + "clusterRef: {name: prod}"},
	{kind: "KsctlRemove", name: "components and an empty keep list", spec: installRefYAML +
		"components: [dashboards, web]\nkeep: []\ncustomResources: Delete\ntimeout: 10m"},
	{kind: "KsctlRemove", name: "keep rules", spec: installRefYAML +
		"keep: [{kind: PersistentVolumeClaim}, {group: \"\", kind: Secret, namespace: x, name: z}]"},
	{kind: "KsctlRemove", name: "a stack in a source", spec: removeStackSpec +
		"path: ./stacks\napprovedDigest: abc\nparameters: {a: [1]}\nchoices: [{name: web, version: 1.2.3, " +
		"override: {values: {x: null}}}]\ncomponents: [web]\ndecryption: {provider: sops, secretRef: {name: age}}"},
	{kind: "KsctlCluster", name: "a kubeconfig", spec: "kubeConfigRef: {name: x}"},
	{kind: "KsctlCluster", name: "all fields",
		spec: "importRef: {name: x, key: aws.ha.demo.us-east-1}\n" +
			"argocd: {namespace: argocd, name: demo, project: web}\nserviceAccountName: deployer"},
	{kind: "ImportState", name: "only required fields", spec: sourceRefYAML},
	{kind: "ImportState", name: "rawExportedData", spec: "rawExportedData: e30="},
	{kind: "ImportState", name: "the fields of ksctl's first ImportState",
		spec: "handled: false\nrawExportedData: e30=\nreasonOfFailure: no answer\nsuccess: false"},
	{kind: "ImportState", name: "all fields", spec: sourceRefYAML + "path: ./states\ndecryption: {provider: sops, " +
		"secretRef: {name: age}}\nselect: {cloud: aws, clusterType: ha, clusterName: demo, region: " +
		"us-east-1}\ncredentials: Skip\nstore: {namespace: ksctl}\nconflict: Overwrite\n" +
		"dryRun: true\ndeletionPolicy: Delete\nserviceAccountName: importer"},
	{kind: "ImportState", name: "an agent", spec: sourceRefYAML + "store: {agent: {address: '[::1]:8080', secretRef: " +
		"{name: x}, serverName: agent.example}}\nconflict: Overwrite\npublish: {kubeConfig: " +
		"false}\ndeletionPolicy: Keep"},
	{kind: "ExportState", name: "only required fields", spec: recipientsYAML + "to: {secret: {name: x}}"},
	{kind: "ExportState", name: "a post-quantum recipient", spec: "recipients: [age1pq1" + strings.Repeat("q", 1950) +
		"]\nto: {secret: {name: x}}"},
	{kind: "ExportState", name: "all fields", spec: recipientsYAML + "from: {namespace: ksctl}\nselect: {cloud: aws, " +
		"clusterType: ha, clusterName: demo, region: us-east-1}\ncredentials: Export\nprune: true\ndeletionPolicy: " +
		"Keep\nserviceAccountName: exporter\n" +
		"to: {git: {url: 'ssh://git@git.example.com/fleet.git', branch: states/prod, path: ./states, secretRef: " +
		"{name: login}, proxySecretRef: {name: proxy}, " +
		"author: {name: Ünal of ksctl, email: x@example.com}, message: Back up}}"},
	{kind: "KsctlSource", name: "only required fields", spec: gitYAML},
	{kind: "KsctlSource", name: "a webhook", spec: gitYAML + "webhook: {type: gitea, secretRef: {name: x}}"},
	{kind: "KsctlSource", name: "a commit status",
		spec: gitYAML + "commitStatus: {type: gitlab, address: 'https://x/y/z', " +
			"cluster: prod-eu, secretRef: {name: x}}"},
	{kind: "KsctlSource", name: "a webhook for a registry",
		spec: "oci: {url: oci://x/y}\nwebhook: {type: generic-hmac, secretRef: {name: x}}"},
	{kind: "KsctlSource", name: "a version range",
		spec: "git: {url: https://git.example.com/x, ref: {semver: \">=1.2.0 <2\"}}"},
	{kind: "KsctlSource", name: "SSH",
		spec: "git: {url: ssh://git@git.example.com/fleet.git, secretRef: {name: key}, proxySecretRef: {name: proxy}}"},
	{kind: "KsctlSource", name: "tag verification",
		spec: "git: {url: https://x, ref: {tag: v1}, verify: {mode: Tag, secretRef: {name: keys}}}\n" +
			"ignore: \"/*\\n!/stacks\""},
	{kind: "KsctlSource", name: "branch verification",
		spec: "git: {url: https://x, verify: {secretRef: {name: keys}}}"},
	{kind: "KsctlSource", name: "a commit", spec: "git: {url: http://git.example.com/x, ref: {commit: " +
		strings.Repeat("a", 40) + "}}"},
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
	if strings.Contains(m.spec, "{name: self}") {
		u.SetName("self")
	}
	return u
}

func (m manifest) testRejected(t *testing.T, c client.Client) {
	err := c.Create(t.Context(), m.object(t), client.DryRunAll)
	if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
		t.Fatalf("got %v, want an invalid object", err)
	}
	if !strings.Contains(err.Error(), m.wantError) {
		t.Errorf("got %q, want an error that contains %q", err, m.wantError)
	}
}

// testAccepted also checks that the API server does not change the spec.
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
