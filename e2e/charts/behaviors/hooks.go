package behaviors

// hooks are about the hooks of an install.
var hooks = []Behavior{
	{Name: "hooks and their deletion policies", Files: map[string]string{
		"templates/a.yaml": configMap("a"),
		"templates/hooks.yaml": hookJob("before", "pre-install", "") + hookJob("kept", "pre-install,pre-upgrade",
			"before-hook-creation") + hookJob("failed", "post-install", "hook-failed") +
			hookJob("deleted", "pre-install", "hook-succeeded") +
			hookJob("deleted-after", "post-install", "before-hook-creation,hook-succeeded") +
			hookJob("tested", "test", ""),
		"templates/account.yaml": "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: account, annotations: " +
			"{helm.sh/hook: pre-install, helm.sh/hook-weight: \"-5\", helm.sh/hook-delete-policy: " +
			"before-hook-creation}}\n"}},
	{Name: "hooks that are neither a Job nor a Pod", Files: map[string]string{
		"templates/a.yaml": configMap("a"),
		"templates/hooks.yaml": hookJob("deleted", "pre-install", "hook-succeeded") + "---\n" +
			"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: account, annotations: " +
			"{helm.sh/hook: pre-install, helm.sh/hook-delete-policy: hook-succeeded}}\n"}},
	{Name: "a hook and an object of one name", Files: map[string]string{
		"templates/a.yaml": configMap("a") + "data: {of: object}\n",
		"templates/hook.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, " +
			"annotations: {helm.sh/hook: pre-install, helm.sh/hook-delete-policy: hook-succeeded}}\n"},
		Warnings: `component "my": shop/templates/hook.yaml: ConfigMap "prod/a" is left out, because it is in ` +
			`shop/templates/a.yaml, too`},
}

// hookJob returns a document with a Job that is a hook.
func hookJob(name, events, policies string) string {
	annotations := "helm.sh/hook: \"" + events + "\""
	if policies != "" {
		annotations += ", helm.sh/hook-delete-policy: \"" + policies + "\""
	}
	return `---
apiVersion: batch/v1
kind: Job
metadata: {name: ` + name + `, annotations: {` + annotations + `}}
spec:
  backoffLimit: 0
  template:
    spec: {restartPolicy: Never, containers: [{name: main, image: "example.org/main:1"}]}
`
}
