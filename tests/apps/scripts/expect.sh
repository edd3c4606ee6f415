cat > program.exp <<'EOF'
log_user 0
set timeout 120
spawn sh -c {stty rows 31 columns 91; while read -r line && [ "$line" ]; do echo "answer $(echo "$line" | bc) $(stty size)"; done; exit 3}
set value 3
for {set step 0} {$step < 80} {incr step} {
    send "($value * 7 + 1) % 1000003\r"
    expect {
        -re {answer (\d+) (\d+ \d+)\r\n} { set value $expect_out(1,string) }
        timeout { puts "no answer"; exit 1 }
        eof { puts "the program has ended"; exit 1 }
    }
    puts "$step $value $expect_out(2,string)"
    flush stdout
    sleep 0.2
}
send "\r"
expect eof
puts "exit status [lindex [wait] 3]"
EOF
expect program.exp
