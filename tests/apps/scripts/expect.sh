cat > program.exp <<'EOF'
log_user 0
set timeout 120
spawn bc -q
set value 3
for {set step 0} {$step < 80} {incr step} {
    send "($value * 7 + 1) % 1000003\r"
    expect {
        -re {1000003\r\n(\d+)\r\n} { set value $expect_out(1,string) }
        timeout { puts "bc gave no answer"; exit 1 }
    }
    puts "$step $value [stty rows < $spawn_out(slave,name)]"
    flush stdout
    sleep 0.2
}
send "quit\r"
expect eof
exit [lindex [wait] 3]
EOF
expect program.exp
