{{- define "metalplane.labels" -}}
app.kubernetes.io/name: metalplane
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{- define "metalplane.controllerUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:metalplane-controller
{{- end }}
{{- define "metalplane.agentUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:metalplane-dpu-agent
{{- end }}
{{- define "metalplane.nodeAgentUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:metalplane-node-agent
{{- end }}
{{- /* Root only to open the driver's socket; nothing else of root's. */}}
{{- define "metalplane.sidecarSecurity" -}}
runAsUser: 0
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}
