package manager

// The permissions of the controller's own service account. Objects of installs are applied with the
// permissions of the service accounts that the installs name.
//
// The live index watches every installed kind, by label:
// +kubebuilder:rbac:groups=*,resources=*,verbs=get;list;watch
//
// Requests for an install impersonate its service account:
// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=impersonate
//
// The controller's own kinds. Git owns the spec, so the controller patches only metadata. It
// creates and deletes the KsctlInstalls of a clusterSelector:
// +kubebuilder:rbac:groups=apps.ksctl.com,resources=ksctlinstalls;ksctlsources;ksctlremoves;ksctlkinds,verbs=patch
// +kubebuilder:rbac:groups=apps.ksctl.com,resources=ksctlinstalls,verbs=create;update;delete
// +kubebuilder:rbac:groups=apps.ksctl.com,resources=ksctlinstalls/status;ksctlsources/status;ksctlremoves/status;ksctlkinds/status,verbs=patch
// +kubebuilder:rbac:groups=apps.ksctl.com,resources=ksctlinventories,verbs=create;update;patch;delete
// +kubebuilder:rbac:groups=storage.ksctl.com,resources=importstates;exportstates,verbs=patch
// +kubebuilder:rbac:groups=storage.ksctl.com,resources=importstates/status;exportstates/status,verbs=patch
// +kubebuilder:rbac:groups=cluster.ksctl.com,resources=ksctlclusters;ksctlautoscalers,verbs=patch
// +kubebuilder:rbac:groups=cluster.ksctl.com,resources=ksctlclusters/status;ksctlautoscalers/status,verbs=patch
//
// The ExternalArtifacts that installs publish:
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=externalartifacts,verbs=create;patch;delete
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=externalartifacts/status,verbs=patch
//
// The finalizer of Secrets with a kubeconfig that is in use:
// +kubebuilder:rbac:groups="",resources=secrets,verbs=patch
//
// Events:
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch
//
// In the controller's own namespace: the key for hashes, the CA of the node group server, and the
// leader election lease:
// +kubebuilder:rbac:groups="",namespace=ksctl-gitops-system,resources=secrets,verbs=get;create;update
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=ksctl-gitops-system,resources=leases,verbs=get;create;update;patch
