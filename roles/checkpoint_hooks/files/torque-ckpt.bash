# bash completion of torque-ckpt; generated from torque_ckpt/cli/parser.py by make docs
_torque_ckpt()
{
    local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]}
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "list show verify prune check node-down status selftest --help --version" -- "$word")
        return
    fi
    case ${COMP_WORDS[COMP_CWORD - 1]} in
        --user) mapfile -t COMPREPLY < <(compgen -u -- "$word"); return ;;
        --directory) mapfile -t COMPREPLY < <(compgen -d -- "$word"); return ;;
        --timeout) mapfile -t COMPREPLY < <(:); return ;;
    esac
    case $command in
        list) mapfile -t COMPREPLY < <(compgen -W "--nodes --json --help" -- "$word") ;;
        show)
            case $word in
                -*) mapfile -t COMPREPLY < <(compgen -W "--json --help" -- "$word") ;;
                /*) mapfile -t COMPREPLY < <(compgen -d -- "$word") ;;
                *) mapfile -t COMPREPLY < <(torque-ckpt list 2> /dev/null |
                        awk -v word="$word" 'NR > 1 && index($1, word) == 1 {print $1}' | uniq) ;;
            esac ;;
        verify)
            case $word in
                -*) mapfile -t COMPREPLY < <(compgen -W "--json --help" -- "$word") ;;
                /*) mapfile -t COMPREPLY < <(compgen -d -- "$word") ;;
                *) mapfile -t COMPREPLY < <(torque-ckpt list 2> /dev/null |
                        awk -v word="$word" 'NR > 1 && index($1, word) == 1 {print $1}' | uniq) ;;
            esac ;;
        prune) mapfile -t COMPREPLY < <(compgen -W "--orphans --dry-run --json --help" -- "$word") ;;
        check) mapfile -t COMPREPLY < <(compgen -W "--pid --json --help" -- "$word") ;;
        node-down) mapfile -t COMPREPLY < <(compgen -W "--dry-run --json --help" -- "$word") ;;
        status) mapfile -t COMPREPLY < <(compgen -W "--json --help" -- "$word") ;;
        selftest) mapfile -t COMPREPLY < <(compgen -W "--user --directory --timeout --json --help" -- "$word") ;;
    esac
}
complete -F _torque_ckpt torque-ckpt
