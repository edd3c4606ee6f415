cat > on-node <<'EOF'
#!/bin/sh
node=$1; shift
exec /opt/torque/current/bin/pbsdsh -h $node /bin/sh -c "$*"
EOF
chmod +x on-node
export PRTE_MCA_plm_ssh_agent=$PWD/on-node
