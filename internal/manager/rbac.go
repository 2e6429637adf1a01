package manager

// What the process may do as itself. What installs may do is up to the accounts
// that they name.
//
// The index watches every kind that is installed, by label:
// +kubebuilder:rbac:groups=*,resources=*,verbs=get;list;watch
//
// Requests for an install are made as its account:
// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=impersonate
//
// Our own kinds; the spec belongs to Git, so that only metadata is patched:
// +kubebuilder:rbac:groups=apps.ksctl.com,resources=ksctlinstalls;ksctlsources;ksctlremoves,verbs=patch
// +kubebuilder:rbac:groups=apps.ksctl.com,resources=ksctlinstalls,verbs=create;update;delete
// +kubebuilder:rbac:groups=apps.ksctl.com,resources=ksctlinstalls/status;ksctlsources/status;ksctlremoves/status,verbs=patch
// +kubebuilder:rbac:groups=apps.ksctl.com,resources=ksctlinventories,verbs=create;update;delete
// +kubebuilder:rbac:groups=storage.ksctl.com,resources=importstates;exportstates,verbs=patch
// +kubebuilder:rbac:groups=storage.ksctl.com,resources=importstates/status;exportstates/status,verbs=patch
// +kubebuilder:rbac:groups=cluster.ksctl.com,resources=ksctlclusters;ksctlautoscalers,verbs=patch
// +kubebuilder:rbac:groups=cluster.ksctl.com,resources=ksctlclusters/status;ksctlautoscalers/status,verbs=patch
//
// What installs publish:
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=externalartifacts,verbs=create;patch;delete
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=externalartifacts/status,verbs=patch
//
// Events on them:
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch
//
// In its own namespace the key for hashes, the authority of the node group server, and the
// lease of the leader:
// +kubebuilder:rbac:groups="",namespace=ksctl-gitops-system,resources=secrets,verbs=get;create;update
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=ksctl-gitops-system,resources=leases,verbs=get;create;update;patch
